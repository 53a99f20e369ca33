#include "pipeline/core/checkpoint_schedule.hpp"

namespace distilld {

CheckpointSchedule::CheckpointSchedule(const CheckpointSpec& spec, Instant start)
    : every_steps_(spec.every_steps), every_(from_seconds(spec.every_secs)), since_(start) {}

bool CheckpointSchedule::due(std::uint64_t step, Instant now) const {
    if (every_steps_ > 0 && step % every_steps_ == 0) {
        return true;
    }
    return every_ > Nanos::zero() && since_ && now - *since_ >= every_;
}

}  // namespace distilld
