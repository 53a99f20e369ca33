#include "tests/simulation/rank_world.hpp"

#include "base/random.hpp"
#include "tests/simulation/simulated_world.hpp"

namespace distilld::test {

RankWorldResult run_rank_world(const RankWorldOptions& options) {
    return World(options).run();
}

RankWorldOptions drawn_options(std::uint64_t seed) {
    SplitMix64 random(seed);
    RankWorldOptions options;
    options.seed = seed;
    options.ranks = 2 + static_cast<std::uint32_t>(random.next() % 7);
    options.groups = options.ranks * (1 + static_cast<std::uint32_t>(random.next() % 3));
    options.faults = static_cast<std::uint32_t>(random.next() % 5);
    options.steps = 10 + static_cast<std::uint32_t>(random.next() % 60);
    options.hosted = random.next() % 3 == 0;
    return options;
}

}  // namespace distilld::test
