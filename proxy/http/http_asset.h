/* Files of proxy/http/page/, as they are embedded by the build. */
#ifndef HEADGATE_HTTP_ASSET_H
#define HEADGATE_HTTP_ASSET_H

#include <stddef.h>

struct http_asset {
    const char *name;  /* of the file */
    const char *bytes; /* with a NUL behind them */
    size_t length;
};

/* Up to one without a name. */
extern const struct http_asset http_assets[];

#endif
