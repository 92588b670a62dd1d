/*
 * Who a client is: [identity:NAME]. An identity says by which facts its clients are known: a certificate, an address,
 * the peer of a Unix socket, the user that was given by AUTH. Of several kinds all must fit, of the words of one kind
 * one. The first identity of the file that fits is the client's.
 *
 * Nothing here asks for a fact: the caller knows which there are, and when others are to come.
 */
#ifndef HEADGATE_IDENTITY_H
#define HEADGATE_IDENTITY_H

#include "base/subnet.h"
#include "conf/conf_table.h"

#include <sys/socket.h>
#include <sys/types.h>

/* Supplementary groups that are looked at; a user that has more is not known by the rest. */
#define IDENTITY_GROUPS_MAX 64

/* Who made the Unix socket at the other end, as the kernel tells. */
struct identity_peer {
    uid_t uid;
    gid_t groups[IDENTITY_GROUPS_MAX + 1];
    size_t group_count;
};

/* What a certificate that was verified says of its holder. Texts that hold a NUL are not to be among them. */
struct identity_certificate {
    const char *common_name;         /* NULL: none */
    const char *issuer;              /* NULL: none */
    const char *const *alternatives; /* "dns:…", "uri:…", "email:…", "ip:…" */
    size_t alternative_count;
};

/* What is known of a client. */
struct identity_facts {
    const struct sockaddr_storage *address;         /* its own, whoever may have passed it on */
    const struct identity_peer *peer;               /* NULL: it is not told, or is not the client */
    const struct identity_certificate *certificate; /* NULL: none that was verified */
    const char *user;                               /* that it gave, and that Redis took; NULL: none */
};

/* A word of an option, compiled. */
struct identity_word {
    unsigned int kind;    /* as who has read it numbers them */
    char *text;           /* a glob, or the name of a user or group */
    struct subnet subnet; /* of an address */
    uint32_t id;          /* of a user or group … */
    bool is_unknown;      /* … of which there is none by that name */
};

/* Words of one option. */
struct identity_words {
    struct identity_word *items;
    size_t count;
};

/* Reads the text of a word. False with what is wrong in problem. */
typedef bool identity_word_reader(struct identity_word *word, struct slice text, char problem[CONF_PROBLEM_MAX]);

/* Reads all words. False if one is at fault; problem tells of the first. Either way they are to be cleared. */
bool identity_words_read(struct identity_words *words, const char *text, identity_word_reader *read,
                         char problem[CONF_PROBLEM_MAX]);
void identity_words_clear(struct identity_words *words);

/* Compiled; never changed afterwards. */
struct identity {
    char *name;
    size_t number;                                          /* among those of the configuration, from 0 */
    struct identity_words certificate, address, peer, user; /* count 0: of no matter */
    char *upstream_user;                                    /* "" for none */
    char *upstream_password; /* "": its clients' lanes are authenticated as all others are */
};

extern const struct conf_section identity_section;

/* Compiles a rule of the section, which was sound when it was read. A user or group whose name is not known any more
 * matches nobody. Ends the program when memory is short. */
void identity_compile(struct identity *identity, size_t number, const struct conf_rule *rule);
void identity_clear(struct identity *identity);
/* Whether a client of whom that is known is one of its. */
bool identity_fits(const struct identity *identity, const struct identity_facts *facts);
/* Whether it has credentials of its own. */
bool identity_has_credentials(const struct identity *identity);
/* Whether what a rule of the section asks for is known only once the client has authenticated. */
bool identity_depends_on_user(const struct conf_rule *rule);

/* Asks the kernel who made the Unix socket at the other end of fd. False if it does not tell, or fd is none. */
bool identity_find_peer(int fd, struct identity_peer *peer);

#endif
