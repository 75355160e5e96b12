/* consumer_mpi.c - a program outside the project that has its own MPI communicator. */
#include <dtrain/dtrain_mpi.h>

#include <stdio.h>

static int check_sum(MPI_Comm comm)
{
    int size = 0;
    int64_t one = 1;

    MPI_Comm_size(comm, &size);
    if (dtrain_init_mpi(comm, NULL) != DTRAIN_OK ||
        dtrain_allreduce("one", &one, &one, 1, DTRAIN_DTYPE_I64, DTRAIN_OP_SUM) != DTRAIN_OK ||
        dtrain_shutdown() != DTRAIN_OK) {
        fprintf(stderr, "consumer_mpi: %s\n", dtrain_last_error());
        return 1;
    }
    if (one != size || !dtrain_built(DTRAIN_FEATURE_MPI)) {
        fprintf(stderr, "consumer_mpi: sum %d of %d ranks\n", (int)one, size);
        return 1;
    }
    printf("consumer_mpi: %d ranks\n", size);
    return 0;
}

int main(int argc, char **argv)
{
    int provided = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    int result = check_sum(MPI_COMM_WORLD);
    MPI_Finalize();
    return result;
}
