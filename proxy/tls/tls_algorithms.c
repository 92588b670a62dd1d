/*
 * OpenSSL looks for an algorithm when it is needed first, makes all of its kind then, and notes that it has done so.
 * What was not made, as memory was short at that moment, is not there from then on: handshakes go on failing with
 * "unsupported" when memory is there again. So all that there is is made early.
 */
#include "tls/tls_private.h"

#include <openssl/core_dispatch.h>
#include <openssl/decoder.h>
#include <openssl/encoder.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <openssl/store.h>

/* To be told of them is to have them made. */
#define PASS_OVER(type)                                                                                                \
    static void pass_over_##type(type *algorithm, void *context)                                                       \
    {                                                                                                                  \
        (void)algorithm;                                                                                               \
        (void)context;                                                                                                 \
    }
#define MAKE(type) type##_do_all_provided(NULL, pass_over_##type, NULL)

PASS_OVER(EVP_ASYM_CIPHER)
PASS_OVER(EVP_CIPHER)
PASS_OVER(EVP_KDF)
PASS_OVER(EVP_KEM)
PASS_OVER(EVP_KEYEXCH)
PASS_OVER(EVP_KEYMGMT)
PASS_OVER(EVP_MAC)
PASS_OVER(EVP_MD)
PASS_OVER(EVP_RAND)
PASS_OVER(EVP_SIGNATURE)
PASS_OVER(OSSL_DECODER)
PASS_OVER(OSSL_ENCODER)
PASS_OVER(OSSL_STORE_LOADER)

void tls_algorithms_make(void)
{
    MAKE(EVP_ASYM_CIPHER);
    MAKE(EVP_CIPHER);
    MAKE(EVP_KDF);
    MAKE(EVP_KEM);
    MAKE(EVP_KEYEXCH);
    MAKE(EVP_KEYMGMT);
    MAKE(EVP_MAC);
    MAKE(EVP_MD);
    MAKE(EVP_RAND);
    MAKE(EVP_SIGNATURE);
    MAKE(OSSL_DECODER);
    MAKE(OSSL_ENCODER);
    MAKE(OSSL_STORE_LOADER);
}
