#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Ranks of a job on a simulated network under a virtual clock: training, the failure protocol, checkpoints, restarts.
/// All chance comes from one seed (the idea is that of FoundationDB's simulator).
namespace distilld::test {

struct RankWorldOptions {
    std::uint64_t seed = 1;
    std::uint32_t ranks = 2;
    std::uint32_t groups = 4;  ///< a multiple of the ranks
    std::uint32_t faults = 2;  ///< kills, stops, partitions and broken links
    std::uint32_t steps = 40;
    bool hosted = false;  ///< the launcher serves the store, not rank 0
    bool trace = false;   ///< prints each event
    /// For a test of the simulation itself: a defect that it must find.
    enum class Defect {
        none,
        ignores_silence,
        adds_in_order_of_arrival,
        commits_halves,
        leaves_at_once,
        forgets_the_lost
    };
    Defect defect = Defect::none;
};

struct RankWorldResult {
    std::vector<std::string> violations;  ///< of what is promised
    std::uint32_t attempts = 0;
    std::uint32_t verdicts = 0;  ///< about losses
    double virtual_seconds = 0;
};

RankWorldResult run_rank_world(const RankWorldOptions& options);

/// Options that are drawn from the seed.
RankWorldOptions drawn_options(std::uint64_t seed);

}  // namespace distilld::test
