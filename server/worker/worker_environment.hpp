#pragma once

#include <string>
#include <vector>

namespace distilld {

/// NAME=value settings that a libtorch child is started with, beside our own environment.
///
/// The OpenMP runtime's threads spin at barriers by default. That is the fastest way while nothing else wants the
/// cores, but a worker shares them with its own I/O thread, the service and often the teacher: measured on 2 cores with
/// a second process, a small operation then took 30 ms in place of 2 ms, and 2.3 ms with OMP_WAIT_POLICY=PASSIVE.
/// So the policy is passive, unless the user has set OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME.
[[nodiscard]] std::vector<std::string> worker_environment();

}  // namespace distilld
