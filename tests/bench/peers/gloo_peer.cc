// gloo_peer ALGORITHM STORE CASE … - Gloo over TCP on this machine, started by Open MPI's mpirun.
// ALGORITHM: ring, bcube (the interface that torch and Horovod use), ring_chunked,
// halving_doubling (the older one). STORE: an empty folder, by which the ranks find each other.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "runner.h"

namespace
{

using Options = gloo::AllreduceOptions;
using Inner = gloo::detail::AllreduceOptionsImpl;

struct Peer {
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::string algorithm;
    // The older interface prepares an algorithm for one buffer and then runs it many times. All
    // ranks have to prepare in the same order, whatever the addresses that they see: so use it for
    // sizes only, whose counts differ from each other.
    std::map<std::pair<float *, size_t>, std::unique_ptr<gloo::Algorithm>> prepared;
};

template <typename T>
void reduce(Peer *peer, T *data, size_t count,
            void (*function)(void *, const void *, const void *, size_t))
{
    Options options(peer->context);
    options.setOutput(data, count);
    options.setAlgorithm(peer->algorithm == "bcube" ? Inner::BCUBE : Inner::RING);
    options.setReduceFunction(function);
    gloo::allreduce(options);
}

gloo::Algorithm *prepare(Peer *peer, float *data, size_t count)
{
    auto &algorithm = peer->prepared[{data, count}];
    if (algorithm)
        return algorithm.get();
    const std::vector<float *> buffers{data};
    if (peer->algorithm == "ring_chunked")
        algorithm.reset(new gloo::AllreduceRingChunked<float>(peer->context, buffers, (int)count));
    else
        algorithm.reset(
            new gloo::AllreduceHalvingDoubling<float>(peer->context, buffers, (int)count));
    return algorithm.get();
}

int sum(void *self, float *data, size_t count)
{
    auto peer = static_cast<Peer *>(self);
    if (peer->algorithm == "ring" || peer->algorithm == "bcube")
        reduce(peer, data, count, &gloo::sum<float>);
    else
        prepare(peer, data, count)->run();
    return 0;
}

int greatest(void *self, double *data, size_t count)
{
    reduce(static_cast<Peer *>(self), data, count, &gloo::max<double>);
    return 0;
}

int number(const char *variable)
{
    const char *value = std::getenv(variable);
    return value ? std::atoi(value) : -1;
}

int run(int argc, char **argv)
{
    Peer self;
    bench_peer_t peer = {number("OMPI_COMM_WORLD_RANK"), number("OMPI_COMM_WORLD_SIZE"), &self, sum,
                         greatest};
    gloo::transport::tcp::attr address;
    address.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(argv[2]);
    self.algorithm = argv[1];
    self.context = std::make_shared<gloo::rendezvous::Context>(peer.rank, peer.size);
    self.context->connectFullMesh(store, device);
    return bench_run(&peer, argc - 2, argv + 2);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 3 || number("OMPI_COMM_WORLD_RANK") < 0) {
        std::fprintf(stderr, "usage: mpirun gloo_peer ALGORITHM STORE CASE ...\n");
        return 2;
    }
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "gloo_peer: %s\n", error.what());
        return 1;
    }
}
