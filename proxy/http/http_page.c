/* The page: one document with all that it needs, put together once. Its policy names the digests of what is in it, so
 * that a browser executes nothing else. */
#include "http/http_asset.h"
#include "http/http_private.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

/* A digest in base64. */
#define DIGEST_TEXT_SIZE 48

static const struct http_asset *find_asset(const char *name)
{
    const struct http_asset *asset = http_assets;

    while (asset->name != NULL && strcmp(asset->name, name) != 0) {
        asset++;
    }
    return asset;
}

/* What stands in the document in place of a part of it. */
static const struct part {
    const char *mark;
    const char *begin, *end;
    const char *assets[2]; /* one behind the other */
    const char *directive;
} parts[] = {
    {"<!-- style -->", "<style>", "</style>", {"uPlot.min.css", "page.css"}, "style-src"},
    {"<!-- script -->", "<script>", "</script>", {"uPlot.iife.min.js", "page.js"}, "script-src"},
};

#define PARTS (sizeof parts / sizeof parts[0])

static void write_assets(const struct part *part, FILE *out)
{
    for (size_t i = 0; i < 2; i++) {
        const struct http_asset *asset = find_asset(part->assets[i]);
        fwrite(asset->bytes, 1, asset->length, out);
        fputc('\n', out);
    }
}

/* False when memory is short. */
static bool digest(const struct part *part, char text[DIGEST_TEXT_SIZE])
{
    unsigned char bytes[SHA256_DIGEST_LENGTH];
    struct text_stream stream;

    if (!text_open(&stream)) {
        return false;
    }
    write_assets(part, stream.out);
    bool is_whole = text_close(&stream);
    if (is_whole) {
        SHA256((const unsigned char *)stream.bytes, stream.length, bytes);
        EVP_EncodeBlock((unsigned char *)text, bytes, sizeof bytes);
    }
    text_free(&stream);
    return is_whole;
}

static bool make_policy(struct http *http)
{
    char digests[PARTS][DIGEST_TEXT_SIZE];

    for (size_t i = 0; i < PARTS; i++) {
        if (!digest(&parts[i], digests[i])) {
            return false;
        }
    }
    snprintf(http->page_policy, sizeof http->page_policy,
             "default-src 'none'; %s 'sha256-%s'; %s 'sha256-%s'; connect-src 'self'; img-src data:; "
             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             parts[0].directive, digests[0], parts[1].directive, digests[1]);
    return true;
}

/* Returns what is behind the mark. */
static const char *write_until(const char *at, const struct part *part, FILE *out)
{
    const char *mark = strstr(at, part->mark);

    if (mark == NULL) {
        return at;
    }
    fwrite(at, 1, (size_t)(mark - at), out);
    fputs(part->begin, out);
    write_assets(part, out);
    fputs(part->end, out);
    return mark + strlen(part->mark);
}

bool http_page_make(struct http *http)
{
    const char *at = find_asset("page.html")->bytes;
    struct text_stream stream;

    if (!make_policy(http) || !text_open(&stream)) {
        return false;
    }
    for (size_t i = 0; i < PARTS; i++) {
        at = write_until(at, &parts[i], stream.out);
    }
    fputs(at, stream.out);
    if (!text_close(&stream)) {
        text_free(&stream);
        return false;
    }
    http->page = http_text_new(stream.bytes, stream.length);
    return http->page != NULL;
}
