#include "pipeline/graph/decode_stage.hpp"

#include <stdexcept>
#include <utility>

namespace distilld {

void DecodeStage::keep(std::uint64_t number, std::optional<TeacherTargets> targets) {
    if (targets) {
        decoded_bytes_ += targets->held_bytes;
    }
    kept_.emplace(number, std::move(targets));
}

std::optional<TeacherTargets> DecodeStage::take(std::uint64_t number) {
    auto node = kept_.extract(number);
    if (node.empty()) {
        throw std::out_of_range("decode stage: an answer that is not kept");
    }
    return std::move(node.mapped());
}

}  // namespace distilld
