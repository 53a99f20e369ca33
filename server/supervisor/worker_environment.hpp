#pragma once

#include <string>
#include <vector>

namespace distilld {

/// NAME=value settings that a libtorch child is started with, beside our own environment.
///
/// The OpenMP runtime's threads wait for each other after every operation. Spinning is fast while nothing else wants
/// the cores, sleeping while something does, and each costs up to twice the time in the other case; so they spin for
/// about as long as going to sleep and being woken takes, which is never far from the better one (docs/decisions/0004).
/// Nothing is set when the user has set OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME.
[[nodiscard]] std::vector<std::string> worker_environment();

}  // namespace distilld
