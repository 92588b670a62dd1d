#define _GNU_SOURCE
#include "protocol.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef HAS_TLS
#include <hiredis/hiredis_ssl.h>
#endif

const char *host;
int port;

/* ---- lines ---- */

static void add(struct answer *lines, const char *text)
{
    size_t length = strlen(text);

    lines->text = realloc(lines->text, lines->length + length + 2);
    if (!lines->text)
        abort();
    for (size_t i = 0; i < length; i++)
        lines->text[lines->length++] = text[i] == '\n' || text[i] == '\r' ? ' ' : text[i];
    lines->text[lines->length++] = '\n';
    lines->text[lines->length] = '\0';
}

static void add_line(struct answer *lines, const char *kind, const char *text)
{
    char *line;

    if (asprintf(&line, "%s %s", kind, text) < 0)
        abort();
    add(lines, line);
    free(line);
}

void tell(struct answer *lines, const char *format, ...)
{
    va_list arguments;
    char *text;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        abort();
    va_end(arguments);
    add_line(lines, "reply", text);
    free(text);
}

void tell_error(struct answer *lines, const char *error)
{
    add_line(lines, "error", error);
}

static void write_reply(FILE *out, const redisReply *reply)
{
    switch (reply->type) {
    case REDIS_REPLY_NIL:
        fputs("nil", out);
        break;
    case REDIS_REPLY_INTEGER:
        fprintf(out, "%lld", reply->integer);
        break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
        fprintf(out, "%d:", reply->type);
        fwrite(reply->str, 1, reply->len, out);
        break;
    default: /* RESP3 has more than one kind of them */
        fprintf(out, "%d:[", reply->type);
        for (size_t i = 0; i < reply->elements; i++) {
            fputs(i > 0 ? ", " : "", out);
            write_reply(out, reply->element[i]);
        }
        fputs("]", out);
    }
}

void tell_reply(struct answer *lines, const redisReply *reply, const char *why_not)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out;

    if (!reply) {
        tell_error(lines, why_not);
        return;
    }
    out = open_memstream(&text, &length);
    if (!out)
        abort();
    write_reply(out, reply);
    fclose(out);
    add_line(lines, "reply", text);
    free(text);
}

/* ---- time ---- */

long long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void pause_ms(int time)
{
    struct timespec pause = {.tv_sec = time / 1000, .tv_nsec = time % 1000 * 1000000L};

    nanosleep(&pause, NULL);
}

int blocked_in(const redisReply *info)
{
    const char *found = info && info->str ? strstr(info->str, "blocked_clients:") : NULL;

    return found ? atoi(strchr(found, ':') + 1) : -1;
}

/* ---- TLS ---- */

#ifdef HAS_TLS

static redisSSLContext *tls;

static void make_tls(void)
{
    redisSSLContextError error = REDIS_SSL_CTX_NONE;

    redisInitOpenSSL();
    tls = redisCreateSSLContext(getenv("SSL_CERT_FILE"), NULL, getenv("TESTED_CERTIFICATE"), getenv("TESTED_KEY"), NULL,
                                &error);
    if (!tls)
        fprintf(stderr, "%s\n", redisSSLContextGetError(error));
}

void secure(redisContext *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (!getenv("TESTED_BY_TLS"))
        return;
    pthread_once(&once, make_tls);
    if (!tls || redisInitiateSSLWithContext(context, tls) != REDIS_OK) {
        fprintf(stderr, "no TLS: %s\n", context->errstr);
        exit(1);
    }
}

#else

void secure(redisContext *context)
{
    (void)context; /* of Debian's it is another library */
}

#endif

/* ---- what is asked ---- */

struct run {
    const struct feature *feature;
    void *client;
    char key[96];
    struct answer lines;
};

static void *work(void *argument)
{
    struct run *run = argument;

    run->feature->run(run->client, run->key, &run->lines);
    return NULL;
}

static const struct feature *find(const struct feature *features, const char *name)
{
    for (; features->name; features++) {
        if (strcmp(features->name, name) == 0)
            return features;
    }
    return NULL;
}

static void run_all(struct run *runs, int count, bool together)
{
    pthread_t *threads = calloc((size_t)count, sizeof(*threads));

    if (!threads)
        abort();
    for (int i = 0; i < count; i++) {
        if (!together)
            work(&runs[i]);
        else if (pthread_create(&threads[i], NULL, work, &runs[i]) != 0)
            abort();
    }
    for (int i = 0; together && i < count; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

static void answer(const struct feature *feature, void **clients, int count, bool together)
{
    struct run *runs = calloc((size_t)count, sizeof(*runs));

    if (!runs)
        abort();
    for (int i = 0; i < count; i++) {
        runs[i].feature = feature;
        runs[i].client = clients[i];
        snprintf(runs[i].key, sizeof(runs[i].key), "newest:%s:%d", feature->name, i);
    }
    run_all(runs, count, together);
    for (int i = 0; i < count; i++) {
        if (runs[i].lines.text)
            fputs(runs[i].lines.text, stdout);
        free(runs[i].lines.text);
    }
    free(runs);
}

static void answer_line(const struct program *program, void **clients, int count, const char *line)
{
    char name[64], how[64];
    const struct feature *feature = NULL;

    if (sscanf(line, "run %63s %63s", name, how) == 2)
        feature = find(program->features, name);
    if (feature)
        answer(feature, clients, count, strcmp(how, "together") == 0);
    else
        puts("unsupported");
    puts("done");
}

int serve(const struct program *program, int argc, char **argv)
{
    int count = argc > 3 ? atoi(argv[3]) : 0;
    void **clients = calloc((size_t)count + 1, sizeof(*clients));
    char line[256];

    if (count < 1 || !clients)
        return 2;
    host = argv[1];
    port = atoi(argv[2]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < count; i++)
        clients[i] = program->connect();
    printf("version %d.%d.%d\nready\n", HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    while (fgets(line, sizeof(line), stdin))
        answer_line(program, clients, count, line);
    for (int i = 0; i < count; i++)
        program->close(clients[i]);
    free(clients);
    return 0;
}
