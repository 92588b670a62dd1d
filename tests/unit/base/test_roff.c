/* Text in manual pages comes out as it was. */
#include "base/roff.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* What that function writes of the text; the caller frees it. */
static char *written(void (*write)(FILE *out, const char *text), const char *text)
{
    char *bytes = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&bytes, &length);

    write(out, text);
    fclose(out);
    return bytes;
}

static void check(void (*write)(FILE *out, const char *text), const char *text, const char *expected)
{
    char *bytes = written(write, text);

    cr_expect_str_eq(bytes, expected);
    free(bytes);
}

static void go_on(FILE *out, const char *text)
{
    roff_text(out, ROFF_GO_ON, text);
}

Test(roff, nothing_is_taken_for_a_request)
{
    check(go_on, ".SH FORGED", "\\&.SH FORGED\n");
    check(go_on, "one\n.SH FORGED\n'br", "one\n\\&.SH FORGED\n\\&\\(aqbr\n");
    check(go_on, "   .indented", "\\&.indented\n");
}

Test(roff, nothing_is_taken_for_an_escape)
{
    check(go_on, "\\fBbold\\n(.s", "\\efBbold\\en(.s\n");
}

Test(roff, what_is_copied_stays_as_it_is)
{
    check(go_on, "--take-over 'a' \"b\" `c` ^ ~",
          "\\-\\-take\\-over \\(aqa\\(aq \\(dqb\\(dq \\(gac\\(ga \\(ha \\(ti\n");
}

Test(roff, characters_beyond_ascii)
{
    check(go_on, "100 µs … 𝄞", "100 \\[u00B5]s \\[u2026] \\[u1D11E]\n");
}

Test(roff, utf8_that_is_cut_ends_with_its_text)
{
    check(go_on, "\xe2\x80", "\\[u0080]\n");
    check(go_on, "\xe2x", "\\[u0002]x\n");
}

Test(roff, lines_that_are_shown_as_they_are)
{
    check(roff_example, "[a]\n\n  b = c", ".PP\n.RS 4\n.nf\n[a]\n.sp\n  b = c\n.fi\n.RE\n");
}

static void write_entry(FILE *out, const char *text)
{
    roff_entry(out, text, "FILE");
}

Test(roff, entries)
{
    check(write_entry, "-c", ".TP\n\\fB\\-c\\fR \\fIFILE\\fR\n");
}

Test(roff, other_pages)
{
    check(roff_see_also, "a.ini(5), b-c(8)", ".SH SEE ALSO\n.BR a.ini (5),\n.BR b\\-c (8)\n");
}
