#include "policy/sections.h"

#include "conf/conf_table.h"
#include "net/identity.h"

void sections_list(const struct policy *const *policies, const struct conf_section *sections[SECTIONS_MAX + 1])
{
    sections[0] = &conf_section_server;
    sections[1] = &conf_section_listener;
    sections[2] = &identity_section;
    policy_list_sections(policies, sections + SECTIONS_OWN);
}
