#include "tls/tls_wire.h"

#include "tls/tls_private.h"

#include <stdlib.h>
#include <string.h>

static int wire_read(BIO *bio, char *data, size_t size, size_t *done)
{
    struct tls_wire *wire = BIO_get_data(bio);
    size_t length = wire->in_length < size ? wire->in_length : size;

    BIO_clear_retry_flags(bio);
    if (length == 0) {
        /* Also at the end of the stream: who reads the socket knows better what that means. */
        BIO_set_retry_read(bio);
        return 0;
    }
    memcpy(data, wire->in, length);
    wire->in += length;
    wire->in_length -= length;
    *done = length;
    return 1;
}

/* There is room for all that one call makes (TLS_WRITE_MAX). */
static int wire_write(BIO *bio, const char *data, size_t size, size_t *done)
{
    struct tls_wire *wire = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (size > TLS_OUT_SIZE - wire->out_length) {
        return 0;
    }
    memcpy(wire->out + wire->out_length, data, size);
    wire->out_length += size;
    *done = size;
    return 1;
}

static long wire_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "headgate");

    if (method != NULL) {
        BIO_meth_set_read_ex(method, wire_read);
        BIO_meth_set_write_ex(method, wire_write);
        BIO_meth_set_ctrl(method, wire_control);
    }
    return method;
}

BIO *tls_wire_bio(struct tls_wire *wire)
{
    BIO *bio = BIO_new(wire->method);

    if (bio != NULL) {
        BIO_set_data(bio, wire);
        BIO_set_init(bio, 1);
    }
    return bio;
}

struct tls_wire *tls_wire_new(struct buffer_pool *pool)
{
    struct tls_wire *wire = calloc(1, sizeof *wire);

    if (wire == NULL) {
        return NULL;
    }
    wire->pool = pool;
    wire->method = make_method();
    wire->in_memory = malloc(TLS_IN_SIZE);
    wire->out = malloc(TLS_OUT_SIZE);
    if (wire->method == NULL || wire->in_memory == NULL || wire->out == NULL) {
        tls_wire_free(wire);
        return NULL;
    }
    return wire;
}

void tls_wire_free(struct tls_wire *wire)
{
    if (wire == NULL) {
        return;
    }
    BIO_meth_free(wire->method);
    free(wire->in_memory);
    free(wire->out);
    free(wire);
}
