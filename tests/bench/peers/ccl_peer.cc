// ccl_peer CASE … - oneCCL on host memory, started by an MPI that brings the ranks together.
#include <cstdio>
#include <exception>
#include <memory>

#include <mpi.h>
#include <oneapi/ccl.hpp>

#include "runner.h"

namespace
{

int sum(void *self, float *data, size_t count)
{
    ccl::allreduce(data, data, count, ccl::datatype::float32, ccl::reduction::sum,
                   *static_cast<ccl::communicator *>(self))
        .wait();
    return 0;
}

int greatest(void *self, double *data, size_t count)
{
    ccl::allreduce(data, data, count, ccl::datatype::float64, ccl::reduction::max,
                   *static_cast<ccl::communicator *>(self))
        .wait();
    return 0;
}

std::shared_ptr<ccl::kvs> meet(int rank)
{
    ccl::kvs::address_type address;
    std::shared_ptr<ccl::kvs> store;
    if (rank == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
    }
    MPI_Bcast(address.data(), (int)address.size(), MPI_BYTE, 0, MPI_COMM_WORLD);
    return rank == 0 ? store : ccl::create_kvs(address);
}

int run(int argc, char **argv)
{
    bench_peer_t peer = {};
    ccl::init();
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    auto communicator = ccl::create_communicator(peer.size, peer.rank, meet(peer.rank));
    peer.self = &communicator;
    peer.sum = sum;
    peer.greatest = greatest;
    return bench_run(&peer, argc, argv);
}

} // namespace

int main(int argc, char **argv)
{
    int status = 1;
    MPI_Init(&argc, &argv);
    try {
        status = run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "ccl_peer: %s\n", error.what());
    }
    if (status)
        MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
    return 0;
}
