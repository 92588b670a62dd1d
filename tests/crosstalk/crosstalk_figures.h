/* What a run counted. */
#ifndef CROSSTALK_FIGURES_H
#define CROSSTALK_FIGURES_H

#include "crosstalk_chaos.h"
#include "crosstalk_client.h"

void figures_add(struct figures *sum, const struct figures *figures);

/* seconds: of the load. */
void figures_print(const struct figures *figures, const struct chaos *chaos, double seconds);

#endif
