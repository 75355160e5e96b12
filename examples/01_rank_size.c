/*
 * 01_rank_size.c - the smallest program: joins the world and says where in it this rank is.
 *
 *     01_rank_size                  a world of one
 *     mpirun -np 4 01_rank_size     a world of four
 */
#include <stdio.h>

#include <dtrain/dtrain.h>

int main(void)
{
    if (dtrain_init(NULL) != DTRAIN_OK) {
        fprintf(stderr, "%s\n", dtrain_last_error());
        return 1;
    }
    printf("rank %d of %d, local rank %d of %d, cross rank %d of %d\n", dtrain_rank(),
           dtrain_size(), dtrain_local_rank(), dtrain_local_size(), dtrain_cross_rank(),
           dtrain_cross_size());
    dtrain_shutdown();
    return 0;
}
