/*
 * mpi_hello.h - what every rank tells all others when a world is made: where it runs, which
 * version, its settings, and whether it failed already. All ranks judge the same list of hellos,
 * so they come to the same end. Free of MPI.
 */
#ifndef DT_COMM_MPI_MPI_HELLO_H
#define DT_COMM_MPI_MPI_HELLO_H

#include <stdint.h>

#include "base/config.h"
#include "base/cpu.h"
#include "comm/topology.h"

/* Counts the changes to anything that ranks say to each other. */
#define DT_MPI_PROTOCOL 1

/*
 * Its size and the fields up to library_version never change, so that versions that differ in
 * everything else still understand that they do.
 */
#define DT_MPI_HELLO_BYTES 2048

typedef struct dt_mpi_hello_fields {
    char magic[8];
    uint32_t protocol;
    uint32_t library_version;
    int32_t status; /* DTRAIN_OK, or why this rank cannot go on; `error` is the text */
    int32_t pid;
    uint64_t network_namespace; /* ranks with different ones have no Unix sockets in common */
    char host[DT_HOST_MAX];
    char boot_id[40]; /* tells hosts of one name apart; "" where it is not known */
    dt_config_t config;
    uint64_t cores[DT_CPU_WORDS]; /* that it may run on */
    int32_t quota;                /* cores' worth of time */
    char error[512];
} dt_mpi_hello_fields_t;

typedef union dt_mpi_hello {
    dt_mpi_hello_fields_t is;
    char bytes[DT_MPI_HELLO_BYTES];
} dt_mpi_hello_t;

_Static_assert(sizeof(dt_mpi_hello_t) == DT_MPI_HELLO_BYTES, "a hello has room for its fields");

/* This rank's own, on this host; `status` with dt_last_error. */
void dt_mpi_hello_write(dt_mpi_hello_t *hello, const dt_config_t *config, dtrain_status_t status);

/*
 * OK when all `size` ranks can make a world: UNSUPPORTED where versions differ, the error of the
 * first rank that failed otherwise; the text names the rank. Ends texts of foreign making.
 */
dtrain_status_t dt_mpi_hello_check(dt_mpi_hello_t *hellos, int rank, int size);

/* 1 when both ranks are on one node; when they can also reach each other by Unix sockets. */
int dt_mpi_hello_same_node(const dt_mpi_hello_t *a, const dt_mpi_hello_t *b);
int dt_mpi_hello_shares_sockets(const dt_mpi_hello_t *a, const dt_mpi_hello_t *b);

dtrain_status_t dt_mpi_hello_topology(const dt_mpi_hello_t *hellos, int rank, int size,
                                      dt_topology_t *topology);

#endif
