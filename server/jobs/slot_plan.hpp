#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/jobs/slot_table.hpp"
#include "server/support/slots_by.hpp"

namespace distilld {

/// What there is to divide.
struct SlotMachine {
    std::vector<std::uint32_t> cores;  ///< in the order in which they are dealt out
    std::vector<std::string> devices;  ///< GPUs, as CUDA_VISIBLE_DEVICES names them
};

/// What this process may use: the cores of the calling thread, and the GPUs that CUDA_VISIBLE_DEVICES names or, where
/// that is not set, those of which the driver's folder `devices` has a file.
[[nodiscard]] SlotMachine this_machine(const std::filesystem::path& devices = "/dev");

/// `count` slots (nothing: one, and by devices one a GPU) of as many cores each, so that a job computes the same bits
/// in whichever it goes on; what is left over is the service's. An error (invalid_input) where there are fewer cores or
/// devices than slots.
Result<std::vector<Slot>> plan_slots(SlotsBy by, std::optional<std::uint32_t> count, const SlotMachine& machine);

}  // namespace distilld
