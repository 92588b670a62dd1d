#include "upstream/script.h"

#include <stdlib.h>
#include <string.h>

const struct script *script_find(const char *name)
{
    for (const struct script *script = scripts; script->name != NULL; script++) {
        if (strcmp(script->name, name) == 0) {
            return script;
        }
    }
    /* Names are constants of this program, so this is a mistake in it that the first run shows. */
    abort();
}
