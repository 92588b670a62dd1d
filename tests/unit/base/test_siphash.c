/* SipHash-2-4 against the values that its authors publish, and keys that are not used twice. */
#include "base/siphash.h"

#include <criterion/criterion.h>

/* Of the key 00 01 … 0f. */
static const struct siphash_key published_key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

/* Of 00 01 02 … of each length up to 63: the reference implementation's vectors, and OpenSSL says the same. All of them
 * in one sum; that of 15 bytes is the paper's example (appendix A). */
Test(siphash, gives_the_published_values)
{
    char data[64];
    uint64_t all = 0;

    for (size_t length = 0; length < sizeof data; length++) {
        data[length] = (char)length;
        uint64_t value = siphash(&published_key, data, length);
        cr_assert(length != 15 || value == 0xa129ca6149be45e5);
        all = all * 31 + value;
    }
    cr_assert_eq(all, 0x136527f4ea75b804);
}

Test(siphash, random_keys_are_not_used_twice)
{
    enum { KEYS = 100 };
    struct siphash_key keys[KEYS];

    for (size_t i = 0; i < KEYS; i++) {
        keys[i] = siphash_random_key();
        cr_assert(keys[i].words[0] != 0 && keys[i].words[1] != 0);
        for (size_t j = 0; j < i; j++) {
            cr_assert(keys[i].words[0] != keys[j].words[0] && keys[i].words[1] != keys[j].words[1]);
            cr_assert_neq(siphash(&keys[i], "key:user:42", 11), siphash(&keys[j], "key:user:42", 11));
        }
    }
}
