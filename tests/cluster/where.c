/* Prints where in the world each rank is, as dtrain sees it, and the host that it runs on. */
#include <stdio.h>
#include <unistd.h>

#include <dtrain/dtrain.h>

int main(void)
{
    char host[256] = "";
    if (dtrain_init(NULL) != DTRAIN_OK || gethostname(host, sizeof host - 1) != 0) {
        fprintf(stderr, "FAILED: %s\n", dtrain_last_error());
        return 1;
    }
    printf("rank %d of %d, local %d of %d, cross %d of %d, homogeneous %d, %s\n", dtrain_rank(),
           dtrain_size(), dtrain_local_rank(), dtrain_local_size(), dtrain_cross_rank(),
           dtrain_cross_size(), dtrain_is_homogeneous(), host);
    return dtrain_shutdown() != DTRAIN_OK;
}
