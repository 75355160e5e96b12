#include "core/stamp.h"

#include <stdio.h>

void dt_stamp_describe(dt_stamp_t stamp, dt_stamp_t other, char *text, size_t cap)
{
    if (stamp.kind == DT_STAMP_EMPTY)
        snprintf(text, cap, "%u (with no gradient marked)", stamp.step);
    else if (stamp.kind == DT_STAMP_EARLY)
        snprintf(text, cap, "%u (marked before step %u was ended)", stamp.step, stamp.step - 1);
    else if (stamp.passes != other.passes)
        snprintf(text, cap, "%u (of %u pass%s)", stamp.step, stamp.passes,
                 stamp.passes == 1 ? "" : "es");
    else
        snprintf(text, cap, "%u", stamp.step);
}
