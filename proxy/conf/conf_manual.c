/* headgate.ini(5), from the option tables. */
#include "conf/conf_table.h"

#include "base/roff.h"

#include <stdlib.h>

static void print_option(FILE *out, const struct conf_option *option)
{
    char *expected = conf_value_expected(option);
    char *facts = conf_format("Value: %s. Default: %s. Reload: %s.", expected,
                              *option->initial != '\0' ? option->initial : "empty",
                              option->reloadable ? "yes" : "no, takes a restart");

    roff_entry(out, option->name, NULL);
    roff_text(out, ROFF_GO_ON, option->help);
    roff_text(out, ROFF_ENTRY_PARAGRAPH, facts);
    free(facts);
    free(expected);
}

static void print_section(FILE *out, const struct conf_section *section)
{
    char *title = conf_format("[%s%s]", section->name, section->has_rules ? ":NAME" : "");

    roff_text(out, ROFF_SUBHEADING, title);
    if (section->help != NULL) {
        roff_text(out, ROFF_GO_ON, section->help);
    }
    for (size_t i = 0; i < section->option_count; i++) {
        print_option(out, &section->options[i]);
    }
    free(title);
}

static void print_syntax(FILE *out)
{
    roff_text(out, ROFF_HEADING,
              "DESCRIPTION\nThe configuration of headgate(8): an ini file, given by -c. Without it every option has "
              "its default. "
              "A change of the file is taken over by itself, if it is sound.");
    roff_example(out, "[headgate]\n"
                      "listen = 127.0.0.1:6380, unix:/run/headgate/headgate.sock\n"
                      "upstream = 127.0.0.1:6379\n"
                      "threads = 2\n"
                      "\n"
                      "[limit:each-user]\n"
                      "limit = 1000\n"
                      "window = 1s\n"
                      "per = user");
    roff_text(out, ROFF_PARAGRAPH,
              "Options are \"name = value\", one to a line, each at the start of its line and once. [headgate] "
              "holds what is not a policy's. A section [section:NAME] may stand as often as wanted, each under "
              "a name of its own; every other section stands once.");
    roff_text(out, ROFF_PARAGRAPH,
              "A line that starts with # or ; is a comment, and so is what follows a # or ; after a blank behind "
              "a value. Text with such a # or ; in it, or with blanks at its ends, stands in double quotes, "
              "within which \\\" is a double quote and \\\\ a backslash.");
    roff_text(out, ROFF_PARAGRAPH,
              "\"include = FILE\" reads another ini file in its place, and \"include = conf.d/*.conf\" all that "
              "match. ${NAME} in a value stands for what the environment has under that name, and "
              "${NAME:-text} for the text if that is empty or not set; $${ is ${ itself.");
    roff_text(out, ROFF_PARAGRAPH,
              "\"headgate -t -c FILE\" prints every fault of a file; \"headgate -T -c FILE\" prints what would be "
              "in force, without passwords.");
}

void conf_print_manual(FILE *out, const struct conf_section *const *sections)
{
    roff_text(out, ROFF_HEADING, "NAME\nheadgate.ini - configuration of headgate, a sidecar proxy for Redis");
    print_syntax(out);
    roff_text(out, ROFF_HEADING, "OPTIONS");
    print_section(out, &conf_section_headgate);
    for (; sections != NULL && *sections != NULL; sections++) {
        print_section(out, *sections);
    }
    roff_text(out, ROFF_HEADING, "FILES");
    roff_entry(out, "/etc/headgate/headgate.ini", NULL);
    roff_text(out, ROFF_GO_ON,
              "The file of the service, where a package has installed it: every option at its default.");
}
