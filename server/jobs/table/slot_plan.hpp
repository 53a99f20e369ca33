#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/jobs/table/slot_table.hpp"
#include "server/support/slots_by.hpp"

namespace distilld {

/// The resources to divide.
struct SlotMachine {
    std::vector<std::uint32_t> cores;  ///< in the order of their distribution
    std::vector<std::string> devices;  ///< GPUs, as CUDA_VISIBLE_DEVICES names them
};

/// What this process may use: the cores of the calling thread, and the GPUs in CUDA_VISIBLE_DEVICES or, if that is not
/// set, those with a file in the driver's folder `devices`.
[[nodiscard]] SlotMachine this_machine(const std::filesystem::path& devices = "/dev");

/// `count` slots (nullopt: one, or one per GPU when divided by devices) with the same number of cores each, so that a
/// job computes the same bits in every slot. The service keeps the rest. invalid_input if there are fewer cores or
/// devices than slots.
Result<std::vector<Slot>> plan_slots(SlotsBy by, std::optional<std::uint32_t> count, const SlotMachine& machine);

}  // namespace distilld
