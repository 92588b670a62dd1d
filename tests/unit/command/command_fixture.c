#include "command_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

const struct command *find(const char *name)
{
    return command_find(slice_of(name));
}

void split(struct line *line, const char *text)
{
    *line = (struct line){.argc = 0};
    snprintf(line->text, sizeof(line->text), "%s", text);
    char *rest = line->text;
    for (char *word = strsep(&rest, " "); word != NULL; word = strsep(&rest, " ")) {
        cr_assert_lt(line->argc, ARGUMENTS_MAX);
        line->argv[line->argc++] = strcmp(word, "\"\"") == 0 ? "" : word;
    }
    line->frame_length = (size_t)snprintf(line->frame, sizeof(line->frame), "*%d\r\n", line->argc);
    for (int i = 0; i < line->argc; i++) {
        char *end = line->frame + line->frame_length;
        size_t room = sizeof(line->frame) - line->frame_length;
        line->frame_length += (size_t)snprintf(end, room, "$%zu\r\n%s\r\n", strlen(line->argv[i]), line->argv[i]);
        cr_assert_lt(line->frame_length, sizeof(line->frame));
    }
}
