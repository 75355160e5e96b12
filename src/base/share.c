#include "base/share.h"

void dt_share(int64_t count, int rank, int size, int64_t *begin, int64_t *end)
{
    int64_t each = count / size, more = count % size;
    *begin = each * rank + (rank < more ? rank : more);
    *end = *begin + each + (rank < more);
}
