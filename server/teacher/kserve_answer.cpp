#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/json_text.hpp"
#include "server/teacher/kserve_outputs.hpp"
#include "server/teacher/teacher_codec.hpp"

namespace distilld::teacher {

namespace json = boost::json;
using models::ScoreRequest;
using models::ScoreResult;
using models::ServedModel;

Result<kserve::EncodedMessage> build_infer(const InferPlan& plan, ScoreResult result, const ServedModel& model,
                                           std::string_view model_name) {
    const std::int64_t rows = plan.score.rows;
    const std::int64_t columns = plan.score.columns;
    const std::int64_t k = plan.score.top_k;
    const std::int64_t vocabulary = model.vocabulary_size;
    const std::int64_t hidden = model.hidden_size;
    kserve::InferResponse response;
    response.model_name = std::string(model_name);
    response.model_version = "1";
    response.id = plan.id;
    response.parameters = {{"vocab_size", vocabulary}, {"temperature", 1.0}, {"row_offset", std::int64_t{0}}};
    if (plan.score.mode == ScoreRequest::Mode::hidden) {
        response.parameters["head_sha256"] = model.head.sha256;
    }
    for (const auto& output : plan.outputs) {
        const bool binary = output.binary.value_or(false);
        if (output.name == kTopkIds) {
            response.outputs.push_back(
                kserve::make_tensor(output.name, "UINT32", {rows, columns, k}, std::move(result.topk_ids), binary));
        } else if (output.name == kTopkLogprobs) {
            response.outputs.push_back(
                kserve::make_tensor(output.name, "FP16", {rows, columns, k}, std::move(result.topk_logprobs), binary));
        } else if (output.name == kTokenLogprobs) {
            response.outputs.push_back(
                kserve::make_tensor(output.name, "FP32", {rows, columns}, std::move(result.token_logprobs), binary));
        } else if (output.name == kTailLogprob) {
            response.outputs.push_back(
                kserve::make_tensor(output.name, "FP32", {rows, columns}, std::move(result.tail_logprob), binary));
        } else if (output.name == kHiddenStates && plan.score.hidden_type == ScoreRequest::HiddenType::f32) {
            response.outputs.push_back(kserve::make_tensor(output.name, "FP32", {rows, columns, hidden},
                                                           std::move(result.hidden_f32), binary));
        } else if (output.name == kHiddenStates) {
            response.outputs.push_back(
                kserve::make_tensor(output.name, name_of(kHiddenDatatypes, plan.score.hidden_type),
                                    {rows, columns, hidden}, std::move(result.hidden_half), binary));
        } else if (plan.score.logits_type == ScoreRequest::LogitsType::f32) {
            response.outputs.push_back(kserve::make_tensor(output.name, "FP32", {rows, columns, vocabulary},
                                                           std::move(result.logits_f32), binary));
        } else {
            response.outputs.push_back(kserve::make_tensor(output.name, "FP16", {rows, columns, vocabulary},
                                                           std::move(result.logits_f16), binary));
        }
    }
    return kserve::build_infer_response(response);
}

std::string build_metadata(const ServedModel& model, std::string_view model_name, const ScoreLimits& limits) {
    kserve::ModelMetadata metadata;
    metadata.name = std::string(model_name);
    metadata.versions = {"1"};
    metadata.platform = "distilld_llama";
    metadata.inputs = {{"input_ids", "INT32", {-1, -1}}, {"seq_lens", "INT32", {-1}}};
    metadata.outputs = {{std::string(kTopkIds), "UINT32", {-1, -1, -1}},
                        {std::string(kTopkLogprobs), "FP16", {-1, -1, -1}},
                        {std::string(kTokenLogprobs), "FP32", {-1, -1}},
                        {std::string(kTailLogprob), "FP32", {-1, -1}},
                        {std::string(kLogits), "FP16", {-1, -1, std::int64_t{model.vocabulary_size}}}};
    if (model.head.is_there()) {
        metadata.outputs.push_back({std::string(kHiddenStates),
                                    name_of(kHiddenDatatypes, model.hidden_type),
                                    {-1, -1, std::int64_t{model.hidden_size}}});
    }
    json::object object = json::parse(kserve::build_model_metadata(metadata)).as_object();
    object["parameters"] = json::object{{"vocab_size", model.vocabulary_size},
                                        {"max_positions", model.max_positions},
                                        {"max_tokens", limits.max_tokens},
                                        {"max_top_k", model.vocabulary_size},
                                        {"parameters", model.parameters},
                                        {"dtype", model.dtype},
                                        {"device", model.device}};
    if (!model.tokenizer_hash.empty()) {
        object["parameters"].as_object()["tokenizer_sha256"] = model.tokenizer_hash;
    }
    if (model.head.is_there()) {
        object["parameters"].as_object()["hidden_size"] = model.hidden_size;
        object["parameters"].as_object()["head_sha256"] = model.head.sha256;
        object["parameters"].as_object()["head_dtype"] = model.head.dtype;
    }
    return to_text(object);
}

}  // namespace distilld::teacher
