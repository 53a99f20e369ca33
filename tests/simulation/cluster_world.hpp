#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// A service with jobs on a simulated cluster, under a virtual clock and network, all from one seed. What runs is the
/// product's: the manager's core with JobTable, JobJournal and SQLite, the Slurm launcher with its queue and places,
/// RemoteWorker, NumberedLink and Relay. Simulated are slurmctld and its nodes (slurm::CommandsOptions::run), the
/// network (RelayOptions::dial), workers, the folders that they commit to under a fence, and users.
namespace distilld::test {

struct ClusterOptions {
    std::uint64_t seed = 1;
    std::uint32_t jobs = 3;
    std::uint32_t nodes = 2;           ///< one job at a time on each
    std::uint32_t faults = 4;          ///< of the service, its store, the network, slurmctld, nodes, relays and workers
    std::uint32_t steps = 10;          ///< of a job
    std::uint32_t step_millis = 3000;  ///< at most
    bool trace = false;                ///< prints each event
    /// For a test of the simulation itself: a defect that it must find.
    enum class Defect { none, no_fence, loses_commits };
    Defect defect = Defect::none;
};

struct ClusterResult {
    std::vector<std::string> violations;  ///< of what is promised
    std::uint64_t attempts = 0;
    std::uint64_t restarts = 0;  ///< of the service
    std::uint64_t events = 0;    ///< in the jobs' histories
    double virtual_seconds = 0;
};

ClusterResult run_cluster(const ClusterOptions& options);

/// Options that are drawn from the seed.
ClusterOptions drawn_cluster(std::uint64_t seed);

}  // namespace distilld::test
