/*
 * In a program that uses MPI itself; the argument says how it was initialised. The program's own
 * MPI calls go on, and MPI is still the program's at the end.
 */
#include <stdio.h>
#include <string.h>

#include <dtrain/dtrain_mpi.h>

#include "check.h"

static int world_rank, world_size;

static void check_mpi_works(void)
{
    int sum = 0, one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size);
}

static void check_world(int rank, int size)
{
    CHECK(dtrain_rank() == rank && dtrain_size() == size);
    check_works("first");
    check_mpi_works();
    check_works("second");
    CHECK_OK(dtrain_shutdown());
    check_mpi_works();
}

/* Each half of the ranks is a world of its own, in the opposite order. */
static void check_halves(int by_fint)
{
    MPI_Comm half;
    int color = world_rank % 2, rank, size;
    MPI_Comm_split(MPI_COMM_WORLD, color, -world_rank, &half);
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &size);
    if (by_fint)
        CHECK_OK(dtrain_init_mpi_fint((int)MPI_Comm_c2f(half), NULL));
    else
        CHECK_OK(dtrain_init_mpi(half, NULL));
    MPI_Comm_free(&half); /* it was duplicated */
    check_world(rank, size);
}

static void check_multiple(void)
{
    CHECK_OK(dtrain_init(NULL));
    check_world(world_rank, world_size);
    CHECK_OK(dtrain_init_mpi(MPI_COMM_WORLD, NULL));
    CHECK_STATUS(dtrain_init_mpi(MPI_COMM_WORLD, NULL), DTRAIN_ERR_ALREADY_INITIALIZED);
    check_world(world_rank, world_size);
    check_halves(0);
    check_halves(1);
    CHECK_STATUS(dtrain_init_mpi(MPI_COMM_NULL, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("MPI_COMM_NULL");
    CHECK_OK(dtrain_init_mpi(MPI_COMM_SELF, NULL));
    check_world(0, 1);
}

static void check_intercommunicator(void)
{
    MPI_Comm half, inter;
    if (world_size < 2)
        return;
    int color = world_rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, color, world_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - color, 5, &inter);
    CHECK_STATUS(dtrain_init_mpi(inter, NULL), DTRAIN_ERR_INVALID_ARGUMENT);
    CHECK_ERROR_HAS("intercommunicator");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static void check_refused(const char *level)
{
    CHECK_STATUS(dtrain_init(NULL), DTRAIN_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS(level);
    CHECK_ERROR_HAS("MPI_THREAD_MULTIPLE");
    CHECK_STATUS(dtrain_init_mpi(MPI_COMM_WORLD, NULL), DTRAIN_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS(level);
    CHECK(dtrain_is_initialized() == 0);
    check_mpi_works();
}

/* Enough when the program says that it keeps still. */
static void check_serialized(void)
{
    check_refused("MPI_THREAD_SERIALIZED");
    dtrain_config_t config;
    CHECK_OK(dtrain_config_init(&config, sizeof config));
    config.mpi_threads = DTRAIN_MPI_THREADS_SERIALIZED;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(dtrain_init(&config));
        check_works("first");
        check_works("second");
        CHECK_OK(dtrain_shutdown());
        check_mpi_works();
    }
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "multiple";
    static const struct {
        const char *name;
        int level;
    } levels[] = {{"single", MPI_THREAD_SINGLE},
                  {"funneled", MPI_THREAD_FUNNELED},
                  {"serialized", MPI_THREAD_SERIALIZED},
                  {"multiple", MPI_THREAD_MULTIPLE}};
    int wanted = MPI_THREAD_MULTIPLE, level, is_finalized = 1;
    for (int i = 0; i < 4; i++)
        wanted = strcmp(how, levels[i].name) == 0 ? levels[i].level : wanted;
    check_begin("test_mpi_init", 50);
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (level != wanted) {
        printf("skipped: this MPI gives thread level %d for %s\n", level, how);
        MPI_Finalize();
        return 77;
    }
    if (wanted == MPI_THREAD_MULTIPLE) {
        check_multiple();
        check_intercommunicator();
    } else if (wanted == MPI_THREAD_SERIALIZED) {
        check_serialized();
    } else {
        check_refused(wanted == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED");
    }
    MPI_Finalized(&is_finalized);
    CHECK(is_finalized == 0);
    MPI_Finalize();
    /* Case 6: what comes after is an error and no abort. */
    CHECK_STATUS(dtrain_init(NULL), DTRAIN_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("finalized");
    return check_end();
}
