/*
 * mpi_aside.h - calls of MPI on a thread of their own, so that a caller of the library comes back
 * also when MPI does not. That happens when a rank has died: Open MPI 4's event loop, for one, may
 * run in a circle for ever.
 */
#ifndef DT_COMM_MPI_MPI_ASIDE_H
#define DT_COMM_MPI_MPI_ASIDE_H

#include <stdint.h>

/*
 * 0 when `call` has returned, 1 when it has not within limit_ns: then it may go on for as long as
 * the process lives, so `argument` has to, and MPI is given up (dt_mpi_give_up). Where no thread
 * can be made, `call` is made on this one.
 */
int dt_mpi_aside(void (*call)(void *argument), void *argument, int64_t limit_ns);

#endif
