#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

#include <cmath>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/half_float.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"
#include "tests/support/paths.hpp"

namespace distilld::test {

std::string read_fixture(const std::string& name) {
    std::ifstream file(source_dir() / "tests/fixtures/teachers" / name, std::ios::binary);
    if (!file) {
        throw std::runtime_error("no fixture " + name);
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::shared_ptr<const TokenBatch> make_batch(std::uint32_t rows, std::uint32_t columns) {
    auto batch = std::make_shared<TokenBatch>();
    batch->rows = rows;
    batch->columns = columns;
    for (std::uint32_t i = 0; i < rows * columns; ++i) {
        batch->input_ids.push_back(static_cast<std::int32_t>(1 + i % 99));
    }
    batch->labels.assign(batch->input_ids.size(), 1);
    batch->lengths.assign(rows, static_cast<std::int32_t>(columns));
    batch->target_tokens = batch->labels.size();
    return batch;
}

std::shared_ptr<const TokenBatch> recorded_batch() {
    auto batch = std::make_shared<TokenBatch>(*make_batch(1, 10));
    batch->input_ids = {54, 74, 271, 345, 417, 331, 289, 414, 491, 29};
    return batch;
}

TeacherSpec kserve_spec(const std::string& url, std::uint32_t top_k, const std::string& model) {
    TeacherSpec spec;
    spec.endpoints = {url};
    spec.protocol = TeacherProtocol::kserve;
    spec.model = model;
    spec.top_k = top_k;
    spec.timeout_secs = 30;
    return spec;
}

ScriptedReply own_topk_reply(const SeenRequest& request) {
    const auto header = request.headers.find("inference-header-content-length");
    std::optional<std::size_t> header_length;
    if (header != request.headers.end()) {
        header_length = std::stoul(header->second);
    }
    const auto parsed =
        kserve::parse_infer_request(std::make_shared<const std::string>(request.body), header_length).value();
    const auto& input = parsed.inputs.at(0);
    const auto k = std::get<std::int64_t>(parsed.parameters.at("top_k"));
    const auto tokens = kserve::copy_elements<std::int32_t>(input);
    std::vector<std::uint32_t> ids;
    for (const std::int32_t token : tokens) {
        for (std::int64_t i = 0; i < k; ++i) {
            ids.push_back(static_cast<std::uint32_t>(token + i) % 512U);
        }
    }
    const auto logprob = static_cast<float>(-std::log(static_cast<double>(k + 1)));
    kserve::InferResponse response;
    response.model_name = "teacher";
    response.parameters = {{"vocab_size", std::int64_t{512}}};
    response.outputs.push_back(kserve::make_tensor("topk_ids", "UINT32", {input.shape[0], input.shape[1], k}, ids));
    response.outputs.push_back(kserve::make_tensor("topk_logprobs", "FP16", {input.shape[0], input.shape[1], k},
                                                   std::vector<std::uint16_t>(ids.size(), float_to_half(logprob))));
    response.outputs.push_back(kserve::make_tensor("tail_logprob", "FP32", {input.shape[0], input.shape[1]},
                                                   std::vector<float>(tokens.size(), logprob)));
    auto encoded = kserve::build_infer_response(response).value();
    ScriptedReply reply;
    reply.headers = {{"Content-Type", "application/octet-stream"},
                     {"Inference-Header-Content-Length", std::to_string(*encoded.json_header_length)}};
    reply.body = std::move(encoded.body);
    return reply;
}

ScriptedHttpServer::Handler own_teacher(ScriptedHttpServer::Handler infer) {
    return [infer = std::move(infer)](const SeenRequest& request) {
        ScriptedReply reply;
        if (request.target == "/v2/health/ready") {
            return reply;
        }
        if (request.method == "GET") {
            reply.body = kserve::build_model_metadata(kserve::own_teacher_metadata("teacher"));
            return reply;
        }
        return infer(request);
    };
}

std::uint16_t unused_port() {
    const ScriptedHttpServer gone(own_topk_reply);
    return gone.port();
}

std::vector<float> floats_of(const ArrayView& array) {
    std::vector<float> values;
    for (std::size_t i = 0; i < array.bytes.size() / element_size(array.type); ++i) {
        values.push_back(element_as_float(array, i));
    }
    return values;
}

std::vector<std::uint32_t> ids_of(const ArrayView& array) {
    std::vector<std::uint32_t> ids;
    for (std::size_t i = 0; i < array.bytes.size() / 4; ++i) {
        ids.push_back(element_as_id(array, i));
    }
    return ids;
}

}  // namespace distilld::test
