/* mpi_peer CASE … - MPI_Allreduce of whatever MPI it is built with. */
#include <mpi.h>

#include "runner.h"

static int sum(void *self, float *data, size_t count)
{
    (void)self;
    return MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
                   MPI_SUCCESS
               ? 0
               : -1;
}

static int greatest(void *self, double *data, size_t count)
{
    (void)self;
    return MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) ==
                   MPI_SUCCESS
               ? 0
               : -1;
}

int main(int argc, char **argv)
{
    bench_peer_t peer = {.sum = sum, .greatest = greatest};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    int status = bench_run(&peer, argc, argv);
    if (status)
        MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
    return 0;
}
