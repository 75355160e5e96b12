/* bench_mpi_absent.c - in a build without MPI there is no MPI to compare with. */
#include "tools/bench/contest.h"

int bench_mpi_is_there(void)
{
    return 0;
}

int bench_mpi_run(const bench_workload_t *workload)
{
    (void)workload;
    return -1;
}
