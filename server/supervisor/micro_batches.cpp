#include "server/supervisor/micro_batches.hpp"

#include <boost/json/object.hpp>

#include "server/protocol/worker_messages.hpp"

namespace distilld {
namespace {

constexpr std::uint32_t kMaxMicroBatches = 65536;  // of /training/micro_batches

}  // namespace

std::optional<MicroBatches> halved(const MicroBatches& of) {
    if (of.batch_size < 2 || of.batch_size % 2 != 0 || of.micro_batches > kMaxMicroBatches / 2) {
        return std::nullopt;
    }
    return MicroBatches{of.batch_size / 2, of.micro_batches * 2};
}

std::string with_micro_batches(const std::string& spec_json, const MicroBatches& micro_batches) {
    auto spec = spec_object(spec_json);
    auto& training = spec["training"];
    if (!training.is_object()) {
        training.emplace_object();
    }
    training.get_object()["batch_size"] = micro_batches.batch_size;
    training.get_object()["micro_batches"] = micro_batches.micro_batches;
    return spec_text(spec);
}

}  // namespace distilld
