/* mpi_tuning.h - what an MPI that libdtrain itself initialises is told beforehand. */
#ifndef DT_COMM_MPI_MPI_TUNING_H
#define DT_COMM_MPI_MPI_TUNING_H

/* Before MPI is initialised. What the user has set stays. */
void dt_mpi_tune(void);

#endif
