/*
 * dtrain_mpi.h - libdtrain in a program that has an MPI communicator of its own.
 *
 * Everything else is in dtrain.h; a program that lets libdtrain find its world does not need
 * this header, and only this one includes mpi.h.
 */
#ifndef DTRAIN_DTRAIN_MPI_H
#define DTRAIN_DTRAIN_MPI_H

#include <mpi.h>

#include <dtrain/dtrain.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * As dtrain_init, with the world being the processes of `comm`, an intracommunicator of the MPI
 * that libdtrain was built with. Collective over comm, which is duplicated and may be freed
 * afterwards. MPI must have been initialised with MPI_THREAD_MULTIPLE, or with
 * MPI_THREAD_SERIALIZED and `mpi_threads` set accordingly: UNSUPPORTED otherwise, with both
 * levels named. INVALID_ARGUMENT for MPI_COMM_NULL or an intercommunicator. Blocks as
 * dtrain_init; the application must not call MPI_Finalize before dtrain_shutdown.
 */
DTRAIN_API dtrain_status_t dtrain_init_mpi(MPI_Comm comm, const dtrain_config_t *config);

/*
 * The same for a communicator's Fortran handle, as MPI_Comm_c2f or mpi4py's comm.py2f() gives
 * it: for Fortran, and for ctypes, which cannot know what an MPI_Comm is.
 */
DTRAIN_API dtrain_status_t dtrain_init_mpi_fint(int fcomm, const dtrain_config_t *config);

#ifdef __cplusplus
}
#endif

#endif /* DTRAIN_DTRAIN_MPI_H */
