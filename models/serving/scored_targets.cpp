#include "models/serving/scored_targets.hpp"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace distilld::models {
namespace {

template <class Value>
ArrayView view_of(ElementType type, const std::vector<Value>& values) {
    return {type, std::as_bytes(std::span(values))};
}

ElementType type_of(ScoreRequest::HiddenType type) noexcept {
    switch (type) {
        case ScoreRequest::HiddenType::f16:
            return ElementType::f16;
        case ScoreRequest::HiddenType::bf16:
            return ElementType::bf16;
        case ScoreRequest::HiddenType::f32:
            break;
    }
    return ElementType::f32;
}

}  // namespace

ScoreRequest score_request(const TokenBatch& tokens, ScoreRequest::Mode mode, std::uint32_t top_k,
                           const ServedModel& model) {
    ScoreRequest request;
    request.rows = tokens.rows;
    request.columns = tokens.columns;
    request.input_ids = tokens.input_ids;
    request.lengths = tokens.lengths;
    request.mode = mode;
    request.top_k = top_k;
    request.hidden_type = model.hidden_type;
    request.token_logprobs = false;
    return request;
}

TeacherTargets scored_targets(const ScoreRequest& request, ScoreResult result, const ServedModel& model) {
    const auto held = std::make_shared<const ScoreResult>(std::move(result));
    TeacherTargets targets;
    targets.rows = request.rows;
    targets.columns = request.columns;
    targets.vocabulary = model.vocabulary_size;
    switch (request.mode) {
        case ScoreRequest::Mode::topk:
            targets.kind = TeacherTargets::Kind::topk;
            targets.width = request.top_k;
            targets.ids = view_of(ElementType::u32, held->topk_ids);
            targets.values = view_of(ElementType::f16, held->topk_logprobs);
            targets.tail = view_of(ElementType::f32, held->tail_logprob);
            break;
        case ScoreRequest::Mode::logits:
            targets.kind = TeacherTargets::Kind::logits;
            targets.width = model.vocabulary_size;
            targets.values = request.logits_type == ScoreRequest::LogitsType::f16
                                 ? view_of(ElementType::f16, held->logits_f16)
                                 : view_of(ElementType::f32, held->logits_f32);
            break;
        case ScoreRequest::Mode::hidden:
            targets.kind = TeacherTargets::Kind::hidden_states;
            targets.width = model.hidden_size;
            targets.values = request.hidden_type == ScoreRequest::HiddenType::f32
                                 ? view_of(ElementType::f32, held->hidden_f32)
                                 : view_of(type_of(request.hidden_type), held->hidden_half);
            break;
    }
    targets.held_bytes = targets.ids.bytes.size() + targets.values.bytes.size() + targets.tail.bytes.size();
    targets.owner = held;
    return targets;
}

std::uint64_t scored_bytes(std::uint64_t positions, ScoreRequest::Mode mode, std::uint32_t top_k,
                           const ServedModel& model) noexcept {
    constexpr std::uint64_t kHalf = 2;
    switch (mode) {
        case ScoreRequest::Mode::topk:
            return positions * (top_k * (sizeof(std::uint32_t) + kHalf) + sizeof(float));
        case ScoreRequest::Mode::logits:
            return positions * model.vocabulary_size * kHalf;
        case ScoreRequest::Mode::hidden:
            break;
    }
    return positions * model.hidden_size * element_size(type_of(model.hidden_type));
}

TeacherHead teacher_head_of(const ServedModel& model) {
    TeacherHead head;
    head.rows = model.vocabulary_size;
    head.columns = model.hidden_size;
    const ElementType half = model.head.dtype == "BF16" ? ElementType::bf16 : ElementType::f16;
    head.values = {model.head.dtype == "F32" ? ElementType::f32 : half, model.head.values};
    head.sha256 = model.head.sha256;
    head.owner = model.head.owner;
    return head;
}

}  // namespace distilld::models
