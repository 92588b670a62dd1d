#include "tls/tls_names.h"

#include "tls/tls_private.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More than any certificate has that was made for a client. A certificate of more is none that rules could go by. */
#define ALTERNATIVES_MAX 64

/* NULL when there is no memory, or if it is none that a text could hold. The caller frees it. */
static char *text_of(const ASN1_STRING *string, const char *prefix)
{
    unsigned char *utf8 = NULL;
    int length = ASN1_STRING_to_UTF8(&utf8, string);
    char *text = NULL;

    if (length >= 0 && memchr(utf8, '\0', (size_t)length) == NULL) {
        size_t size = strlen(prefix) + (size_t)length + 1;
        text = malloc(size);
        if (text != NULL) {
            snprintf(text, size, "%s%.*s", prefix, length, (const char *)utf8);
        }
    }
    OPENSSL_free(utf8);
    return text;
}

/* Several: which of them another program goes by is not known. */
static char *common_name_of(const X509_NAME *subject)
{
    int place = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    bool is_single = place >= 0 && X509_NAME_get_index_by_NID(subject, NID_commonName, place) < 0;
    char *text = is_single ? text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, place)), "") : NULL;

    return text != NULL ? text : strdup("");
}

/* Control characters, a NUL too, are written as \00. */
static char *issuer_of(const X509 *certificate)
{
    BIO *out = BIO_new(BIO_s_mem());
    char *data, *text = NULL;

    if (out != NULL &&
        X509_NAME_print_ex(out, X509_get_issuer_name(certificate), 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB) >= 0) {
        long length = BIO_get_mem_data(out, &data);
        text = strndup(data, length > 0 ? (size_t)length : 0);
    }
    BIO_free(out);
    return text;
}

static char *address_of(const ASN1_OCTET_STRING *bytes)
{
    char host[INET6_ADDRSTRLEN], text[INET6_ADDRSTRLEN + 4];
    int length = ASN1_STRING_length(bytes);

    if ((length != 4 && length != 16) ||
        inet_ntop(length == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(bytes), host, sizeof host) == NULL) {
        return NULL;
    }
    snprintf(text, sizeof text, "ip:%s", host);
    return strdup(text);
}

static char *alternative_of(const GENERAL_NAME *name)
{
    switch (name->type) {
    case GEN_DNS:
        return text_of(name->d.dNSName, "dns:");
    case GEN_URI:
        return text_of(name->d.uniformResourceIdentifier, "uri:");
    case GEN_EMAIL:
        return text_of(name->d.rfc822Name, "email:");
    case GEN_IPADD:
        return address_of(name->d.iPAddress);
    default:
        return NULL;
    }
}

/* False when memory is short, or there are too many. */
static bool list_alternatives(struct tls_names *names, const X509 *certificate, bool *has_too_many)
{
    GENERAL_NAMES *list = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    int count = list != NULL ? sk_GENERAL_NAME_num(list) : 0;

    *has_too_many = count > ALTERNATIVES_MAX;
    if (count > 0 && !*has_too_many) {
        names->alternatives = calloc((size_t)count, sizeof *names->alternatives);
    }
    for (int i = 0; names->alternatives != NULL && i < count; i++) {
        char *text = alternative_of(sk_GENERAL_NAME_value(list, i));
        if (text != NULL) {
            names->alternatives[names->count++] = text;
        }
    }
    GENERAL_NAMES_free(list);
    return count == 0 || names->alternatives != NULL;
}

struct tls_names *tls_names_of(const X509 *certificate, bool *has_too_many)
{
    struct tls_names *names = calloc(1, sizeof *names);

    *has_too_many = false;
    if (names == NULL) {
        return NULL;
    }
    names->common_name = common_name_of(X509_get_subject_name(certificate));
    names->issuer = issuer_of(certificate);
    if (names->common_name == NULL || names->issuer == NULL || !list_alternatives(names, certificate, has_too_many)) {
        tls_names_free(names);
        return NULL;
    }
    return names;
}

void tls_names_free(struct tls_names *names)
{
    if (names == NULL) {
        return;
    }
    for (size_t i = 0; i < names->count; i++) {
        free(names->alternatives[i]);
    }
    free(names->alternatives);
    free(names->common_name);
    free(names->issuer);
    free(names);
}
