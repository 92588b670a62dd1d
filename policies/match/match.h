/*
 * What a rule speaks of: commands, keys and clients, as an operator names them in the ini file. Each is compiled from
 * the text of its option, once for a rule, and asked for each request.
 *
 * Compiling gives NULL if the text is faulty, with what is wrong in problem. It ends the program when memory is short,
 * as all of the configuration does. Freeing NULL does nothing.
 */
#ifndef HEADGATE_MATCH_H
#define HEADGATE_MATCH_H

#include "conf/glob.h"
#include "conf/words.h"
#include "policy/policy.h"

/* ---- commands: "get set @write config|set !del *", later words override earlier ones ---- */

/* What is expected in the place of a faulty text, for who reports it; for keys and clients below, too. */
#define MATCH_COMMANDS_EXPECTED "command names, @categories or * , with ! before those to leave out"

struct match_commands;

struct match_commands *match_commands_compile(const char *text, char problem[CONF_PROBLEM_MAX]);
void match_commands_free(struct match_commands *commands);
/* Whether any request of this command (NULL: one that Headgate does not know) may match. */
bool match_commands_may(const struct match_commands *commands, const struct command *command);
/* The same for all of its requests, whatever their subcommand. */
bool match_commands_all_of(const struct match_commands *commands, const struct command *command);
/* Whether one with this second argument (empty if there is none) does. */
bool match_commands_is(const struct match_commands *commands, const struct command *command, struct slice subcommand);
/* The same for a request, which is taken apart only if the words speak of subcommands of its command. */
bool match_commands_request(const struct match_commands *commands, const struct policy_request *request);
/* The argument behind the name, if it came whole; else an empty slice. */
struct slice match_second_argument(const struct policy_request *request);
/* Whether any command that may match has keys. */
bool match_commands_have_keys(const struct match_commands *commands);

/* ---- keys: globs in the manner of Redis' KEYS; no text stands for all requests, with or without keys ---- */

#define MATCH_KEYS_EXPECTED "globs with * ? [a-z] and \\, with blanks or commas between them"

struct match_keys;

enum match_answer { MATCH_NO, MATCH_YES, MATCH_OPEN /* not known before more of a partial request has come */ };

struct match_keys *match_keys_compile(const char *text, char problem[CONF_PROBLEM_MAX]);
void match_keys_free(struct match_keys *keys);
/* Whether all requests match, so that their keys need not be looked for. */
bool match_keys_all(const struct match_keys *keys);
bool match_keys_is(const struct match_keys *keys, struct slice key);
/* Whether a glob of the text has "{*}", whose braces stand for themselves here, unlike in a rule that counts per key;
 * problem says so. */
bool match_keys_warn(const char *text, char problem[CONF_PROBLEM_MAX]);
/* Whether all keys that a glob of the later text matches are matched by one of the earlier one, as far as that is plain
 * to see: they are the same, or the earlier one is a text with a star at its end. glob is set to the first of those. */
bool match_keys_hide(const char *earlier, const char *later, struct slice *glob);
/* Whether that is so of all globs of the later text, of which there is one at least. */
bool match_keys_cover(const char *earlier, const char *later);
/* The same for globs of which each may have one part in braces: what of a key stands for that part is told, too. Braces
 * of match_keys_compile() are characters like others. */
struct match_keys *match_keys_compile_parts(const char *text, char problem[CONF_PROBLEM_MAX]);
/* The first glob that matches says what the part is: the whole key if the glob has no braces, or there is no glob. */
bool match_keys_part(const struct match_keys *keys, struct slice key, struct slice *part);
/* Whether a key that the pattern may become might match: false only if that is out of the question by how globs and
 * pattern begin and end. */
bool match_keys_may_be(const struct match_keys *keys, const struct command_key_pattern *pattern);
/*
 * Whether any key of the request matches. Who is not to touch certain keys could otherwise hide them, so what may be
 * one counts as one: a pattern of SORT that may become such a key, and any argument of a command that Headgate does not
 * know.
 */
enum match_answer match_keys_any(const struct match_keys *keys, const struct policy_request *request);

/* Calls visit for the keys of the request that are named in it, until it returns false. Those of commands that Headgate
 * does not know are not. False: it is partial and may have others. */
bool match_visit_keys(const struct policy_request *request, command_key_visitor *visit, void *context);

/* The bytes of the request on the wire. False: it is partial, and these are what came and the rest of the argument that
 * is coming; there is more. */
bool match_request_bytes(const struct policy_request *request, uint64_t *bytes);

/* ---- requests: by the options commands and keys of a rule ---- */

struct match_requests {
    struct match_commands *commands;
    struct match_keys *keys;
};

/* The name of the option that is at fault, with what is wrong and what is expected, or NULL. Keys are at fault, too, if
 * none of the commands has any. Either way requests is to be cleared. */
const char *match_requests_compile(struct match_requests *requests, const char *commands, const char *keys,
                                   char problem[CONF_PROBLEM_MAX], const char **expected);
void match_requests_clear(struct match_requests *requests);
enum match_answer match_requests_is(const struct match_requests *requests, const struct policy_request *request);

/* Whether a rule before this one, of its section, takes all that this one means (as covers() says), so that it never
 * applies; problem says so. */
bool match_is_covered(const struct conf_rule *rule, const struct conf_rule *all,
                      bool (*covers)(const struct conf_rule *earlier, const struct conf_rule *later),
                      char problem[CONF_PROBLEM_MAX]);

/* ---- clients: "ip:10.0.0.0/8 user:batch name:worker-* identity:web" ---- */

#define MATCH_CLIENTS_EXPECTED                                                                                         \
    "ip:ADDRESS, ip:ADDRESS/BITS, user:GLOB, name:GLOB and identity:GLOB, with blanks or commas between them"

struct match_clients;

struct match_clients *match_clients_compile(const char *text, char problem[CONF_PROBLEM_MAX]);
void match_clients_free(struct match_clients *clients);
/* Whether all clients match, but perhaps those of the other kind of address. */
bool match_clients_all(const struct match_clients *clients);
bool match_clients_is(const struct match_clients *clients, const struct policy_client *client);
/* Whether one of the words is an identity without wildcards of which the list of rules has no section; problem says
 * so. */
bool match_clients_warn(const char *text, const struct conf_rule *all, char problem[CONF_PROBLEM_MAX]);
/* Whether one of the words of an option `except` is an address or a network. */
bool match_names_addresses(const char *text);

/* ---- what names of keys begin with ---- */

#define MATCH_PREFIX_EXPECTED "a text without them"

bool match_prefix_check(const char *prefix, char problem[CONF_PROBLEM_MAX]);

#endif
