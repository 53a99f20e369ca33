#include "server/supervisor/micro_batches.hpp"

#include <boost/json/object.hpp>
#include <memory>
#include <utility>

#include "api/job_spec.hpp"

namespace distilld {
namespace {

constexpr std::uint32_t kMaxMicroBatches = 65536;  // limit of /training/micro_batches

}  // namespace

std::optional<MicroBatches> halved(const MicroBatches& of) {
    if (of.batch_size < 2 || of.batch_size % 2 != 0 || of.micro_batches > kMaxMicroBatches / 2) {
        return std::nullopt;
    }
    return MicroBatches{of.batch_size / 2, of.micro_batches * 2};
}

void take_micro_batches(WorkerStart& start, const MicroBatches& micro_batches) {
    auto spec = spec_object(start.spec_json);
    auto& training = spec["training"];
    if (!training.is_object()) {
        training.emplace_object();
    }
    training.get_object()["batch_size"] = micro_batches.batch_size;
    training.get_object()["micro_batches"] = micro_batches.micro_batches;
    start.spec_json = spec_text(spec);
    if (start.spec) {
        JobSpec changed = *start.spec;
        changed.training.batch_size = micro_batches.batch_size;
        changed.training.micro_batches = micro_batches.micro_batches;
        start.spec = std::make_shared<const JobSpec>(std::move(changed));
    }
}

}  // namespace distilld
