#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/sha256.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"
#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"
#include "pipeline/teacher/remote_teacher.hpp"
#include "pipeline/teacher/teacher_head.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::floats_of;
using test::kserve_spec;
using test::Loop;
using test::make_batch;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;
using testing::HasSubstr;

constexpr std::uint32_t kVocabulary = 100;
constexpr std::uint32_t kHidden = 4;

std::string sha256_of(const std::string& bytes) {
    Sha256 hash;
    hash.add(std::span<const char>(bytes));
    return hash.hex();
}

/// A safetensors file of a head whose values follow from `seed`.
std::string head_file(double seed = 1, const std::string& dtype = "F32") {
    const std::string header = R"({"__metadata__":{"format":"pt"},"lm_head.weight":{"dtype":")" + dtype +
                               R"(","shape":[)" + std::to_string(kVocabulary) + "," + std::to_string(kHidden) +
                               R"(],"data_offsets":[0,)" + std::to_string(kVocabulary * kHidden * sizeof(float)) +
                               "]}}";
    const std::uint64_t length = header.size();
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    file += header;
    for (std::uint32_t i = 0; i < kVocabulary * kHidden; ++i) {
        const auto value = static_cast<float>(2 * std::sin(seed * i));
        file.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return file;
}

/// What stands at each token's position.
std::vector<float> hidden_of(const std::vector<std::int32_t>& tokens) {
    std::vector<float> values;
    for (const std::int32_t token : tokens) {
        for (std::uint32_t i = 0; i < kHidden; ++i) {
            values.push_back(std::cos(0.3F * static_cast<float>(token) + static_cast<float>(i)));
        }
    }
    return values;
}

/// A teacher with hidden states, and ways in which it can be wrong.
struct HiddenTeacher {
    std::string file = head_file();
    std::string announced = sha256_of(file);
    std::size_t piece = 0;     ///< of the head that an answer holds; 0: the server knows no ranges
    int not_up = 0;            ///< so many requests for the head are answered 503
    float error = 0;           ///< added to each hidden state
    bool has_topk = true;      ///< beside the hidden states
    std::string answers_of{};  ///< head_sha256 of answers; empty: as announced

    ScriptedReply operator()(const SeenRequest& request) {
        if (request.method == "POST") {
            return infer(request);
        }
        if (request.target == "/v2/models/teacher/head") {
            return head(request);
        }
        ScriptedReply reply;
        if (request.target == "/v2/models/teacher") {
            auto metadata = kserve::own_teacher_metadata("teacher");
            if (!has_topk) {
                metadata.outputs.clear();
            }
            metadata.outputs.push_back({"hidden_states", "FP32", {-1, -1, -1}});
            metadata.parameters = {
                {"hidden_size", std::int64_t{kHidden}}, {"head_sha256", announced}, {"max_tokens", std::int64_t{64}}};
            reply.body = kserve::build_model_metadata(metadata);
        }
        return reply;
    }

  private:
    ScriptedReply head(const SeenRequest& request) {
        ScriptedReply reply;
        if (not_up > 0) {
            --not_up;
            reply.status = 503;
            reply.headers = {{"Retry-After", "0"}};
            return reply;
        }
        reply.headers = {{"ETag", '"' + sha256_of(file) + '"'}};
        if (piece == 0) {
            reply.body = file;
            return reply;
        }
        const std::size_t first = std::stoul(request.headers.at("range").substr(std::strlen("bytes=")));
        reply.status = 206;
        reply.body = file.substr(first, piece);
        reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(first) + "-" +
                                                        std::to_string(first + reply.body.size() - 1) + "/" +
                                                        std::to_string(file.size()));
        return reply;
    }

    [[nodiscard]] ScriptedReply infer(const SeenRequest& request) const {
        std::optional<std::size_t> header;
        if (const auto found = request.headers.find("inference-header-content-length");
            found != request.headers.end()) {
            header = std::stoul(found->second);
        }
        const auto parsed =
            kserve::parse_infer_request(std::make_shared<const std::string>(request.body), header).value();
        const auto& input = parsed.inputs.at(0);
        const auto tokens = kserve::copy_elements<std::int32_t>(input);
        kserve::InferResponse response;
        response.model_name = "teacher";
        const auto mode = std::get<std::string>(parsed.parameters.at("mode"));
        if (mode == "logits") {
            ScriptedReply reply;
            reply.status = 400;
            return reply;
        }
        if (mode == "hidden") {
            std::vector<float> values = hidden_of(tokens);
            for (float& value : values) {
                value += error;
            }
            response.parameters = {{"head_sha256", answers_of.empty() ? announced : answers_of}};
            response.outputs.push_back(
                kserve::make_tensor("hidden_states", "FP32", {input.shape[0], input.shape[1], kHidden}, values));
        } else {
            add_topk(tokens, input.shape, std::get<std::int64_t>(parsed.parameters.at("top_k")), response);
        }
        auto encoded = kserve::build_infer_response(response).value();
        ScriptedReply reply;
        reply.headers = {{"Content-Type", "application/octet-stream"},
                         {"Inference-Header-Content-Length", std::to_string(*encoded.json_header_length)}};
        reply.body = std::move(encoded.body);
        return reply;
    }

    void add_topk(const std::vector<std::int32_t>& tokens, const std::vector<std::int64_t>& sides, std::int64_t k,
                  kserve::InferResponse& response) const {
        const std::vector<float> values = hidden_of(tokens);
        TeacherTargets hidden;
        hidden.kind = TeacherTargets::Kind::hidden_states;
        hidden.rows = static_cast<std::uint32_t>(sides[0]);
        hidden.columns = static_cast<std::uint32_t>(sides[1]);
        hidden.width = kHidden;
        hidden.values = {ElementType::f32, std::as_bytes(std::span(values))};
        const auto head = read_head_file(std::as_bytes(std::span(file)), {}, nullptr).value();
        const auto top = reduce_logits(project_few(hidden, head).value(), static_cast<std::uint32_t>(k)).value();
        response.outputs.push_back(
            kserve::make_tensor("topk_ids", "UINT32", {sides[0], sides[1], k}, test::ids_of(top.ids)));
        response.outputs.push_back(
            kserve::make_tensor("topk_logprobs", "FP32", {sides[0], sides[1], k}, floats_of(top.values)));
        response.outputs.push_back(
            kserve::make_tensor("tail_logprob", "FP32", {sides[0], sides[1]}, floats_of(top.tail)));
    }
};

TeacherSpec spec_of(const std::string& url, TargetsChoice targets = TargetsChoice::hidden) {
    TeacherSpec spec = kserve_spec(url, 0);
    spec.targets = targets;
    return spec;
}

TeacherInfo probed(HiddenTeacher teacher, TargetsChoice targets = TargetsChoice::hidden) {
    ScriptedHttpServer server(std::move(teacher));
    Loop loop;
    const auto source = loop.teacher(spec_of(server.url(), targets)).value();
    return loop.run(source->probe(kVocabulary)).value();
}

std::string refusal(HiddenTeacher teacher, std::uint32_t vocabulary = kVocabulary) {
    ScriptedHttpServer server(std::move(teacher));
    Loop loop;
    const auto source = loop.teacher(spec_of(server.url())).value();
    const auto info = loop.run(source->probe(vocabulary));
    return info ? "accepted" : info.error().message;
}

TEST(HiddenStates, TheHeadComesWithTheProbeAndTheStatesWithTheAnswers) {
    HiddenTeacher teacher;
    teacher.piece = 100;
    ScriptedHttpServer server(teacher);
    Loop loop;
    const auto source = loop.teacher(spec_of(server.url())).value();
    const auto info = loop.run(source->probe(kVocabulary)).value();
    EXPECT_EQ(info.kind, TeacherTargets::Kind::hidden_states);
    EXPECT_EQ(info.width, kHidden);
    EXPECT_EQ(info.top_k, 0U);
    EXPECT_EQ(info.vocabulary_size, kVocabulary);
    EXPECT_THAT(info.description, HasSubstr("hidden states of 4 values"));
    ASSERT_NE(info.head, nullptr);
    EXPECT_EQ(info.head->rows, kVocabulary);
    EXPECT_EQ(info.head->columns, kHidden);
    EXPECT_EQ(info.head->sha256, teacher.announced);
    EXPECT_EQ(floats_of(info.head->values)[5], static_cast<float>(2 * std::sin(5.0)));
    EXPECT_NE(info.fingerprint, "") << "of the log-probabilities that follow";

    const auto size = source->answer_size(2, 3);
    EXPECT_EQ(size.held_bytes, 2U * 3U * kHidden * sizeof(float));
    const auto batch = make_batch(2, 3);
    const auto answer = loop.fetch(*source, 0, batch, 20s).value();
    EXPECT_EQ(answer.kind, TeacherTargets::Kind::hidden_states);
    EXPECT_EQ(answer.width, kHidden);
    EXPECT_EQ(floats_of(answer.values), hidden_of(batch->input_ids));
    EXPECT_LE(answer.wire_bytes, size.max_wire_bytes.value());
}

// As a run asks that has to know the head before it can choose its batch size.
TEST(HiddenStates, AHeadThatWasGivenIsNotFetchedAgain) {
    HiddenTeacher teacher;
    ScriptedHttpServer server(teacher);
    const auto heads = [&] {
        const auto requests = server.requests();
        return std::count_if(requests.begin(), requests.end(),
                             [](const SeenRequest& request) { return request.target.ends_with("/head"); });
    };
    Loop loop;
    const auto source = loop.teacher(spec_of(server.url())).value();
    EXPECT_EQ(source->head_fetch().bytes, 0U);
    const auto first = loop.run(source->probe(kVocabulary)).value();
    ASSERT_NE(first.head, nullptr);
    EXPECT_EQ(heads(), 1);
    source->expect_batches(3, 8);
    const auto again = loop.run(source->probe(kVocabulary)).value();
    EXPECT_EQ(heads(), 1);
    EXPECT_EQ(again.head, nullptr);
    EXPECT_EQ(again.fingerprint, first.fingerprint);
    EXPECT_EQ(again.vocabulary_size, kVocabulary);
    EXPECT_EQ(again.kind, TeacherTargets::Kind::hidden_states);
    EXPECT_EQ(source->head_fetch().bytes, teacher.file.size());
    EXPECT_GT(source->head_fetch().seconds, 0);
    EXPECT_NE(server.requests().back().body.find("[3,8]"), std::string::npos) << "the whole micro-batch is asked for";
}

TEST(HiddenStates, OneFingerprintWhateverTheTeacherSends) {
    ScriptedHttpServer server(HiddenTeacher{});
    Loop loop;
    const auto source = loop.teacher(kserve_spec(server.url(), 8)).value();
    const auto rows = loop.run(source->probe(kVocabulary)).value();
    EXPECT_EQ(rows.kind, TeacherTargets::Kind::topk);
    EXPECT_TRUE(same_teacher(rows.fingerprint, probed({}).fingerprint));
    HiddenTeacher other;
    other.file = head_file(3);
    other.announced = sha256_of(other.file);
    EXPECT_FALSE(same_teacher(rows.fingerprint, probed(other).fingerprint));
}

TEST(HiddenStates, AutoTakesThemWhereTheyAreSmaller) {
    EXPECT_EQ(probed({}, TargetsChoice::automatic).kind, TeacherTargets::Kind::hidden_states);
    // Four values of fp32 take as much as eight logits of fp16.
    ScriptedHttpServer server(HiddenTeacher{});
    Loop loop;
    const auto source = loop.teacher(spec_of(server.url(), TargetsChoice::automatic)).value();
    EXPECT_FALSE(loop.run(source->probe(8))) << "the made-up teacher has no logits to give";
    const auto seen = server.requests();
    EXPECT_TRUE(std::none_of(seen.begin(), seen.end(), [](const auto& one) { return one.target.ends_with("/head"); }));
}

TEST(HiddenStates, AServerThatKnowsNoRangesOrComesLaterWillDo) {
    HiddenTeacher teacher;
    teacher.not_up = 2;
    EXPECT_NE(probed(teacher).head, nullptr);
    teacher.has_topk = false;  // nothing to hold the head against
    EXPECT_NE(probed(teacher).head, nullptr);
}

TEST(HiddenStates, AHeadThatDoesNotFitIsRefused) {
    HiddenTeacher teacher;
    teacher.error = 0.5F;  // before the norm, say
    EXPECT_THAT(refusal(teacher), HasSubstr("/v2/models/teacher/head: the head yields other log-probabilities"));

    HiddenTeacher changed;
    changed.announced = sha256_of("another");
    EXPECT_THAT(refusal(changed), HasSubstr("the head has changed: its ETag is"));

    HiddenTeacher narrow;
    narrow.has_topk = false;
    narrow.file.resize(narrow.file.size() - 4);
    narrow.announced = sha256_of(narrow.file);
    EXPECT_THAT(refusal(narrow), HasSubstr("the head has 1596 bytes of values, its shape needs 1600"));
}

TEST(HiddenStates, ATeacherWithoutThemSaysSo) {
    ScriptedHttpServer server(test::own_teacher(test::own_topk_reply));
    Loop loop;
    const auto source = loop.teacher(spec_of(server.url())).value();
    const auto info = loop.run(source->probe(kVocabulary));
    ASSERT_FALSE(info);
    EXPECT_THAT(info.error().message,
                HasSubstr("/teacher/targets: is hidden, but the model does not offer hidden states"));
    TeacherSpec seed = spec_of(server.url());
    seed.protocol = TeacherProtocol::seed;
    const std::size_t asked = server.requests().size();
    const auto refused = loop.teacher(seed);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("/teacher/targets: is hidden, but protocol 'seed' has no"));
    EXPECT_EQ(server.requests().size(), asked) << "nothing is sent";
}

TEST(HiddenStates, AnEndpointWithAnotherHeadIsLeftOut) {
    HiddenTeacher other;
    other.file = head_file(3);
    other.announced = sha256_of(other.file);
    ScriptedHttpServer first(HiddenTeacher{});
    ScriptedHttpServer second(other);
    Loop loop;
    std::vector<std::string> warnings;
    RemoteTeacherOptions options;
    options.on_warning = [&](const std::string& text) { warnings.push_back(text); };
    TeacherSpec spec = spec_of(first.url());
    spec.endpoints.push_back(second.url());
    const auto source = loop.teacher(spec, options).value();
    const auto info = loop.run(source->probe(kVocabulary)).value();
    EXPECT_THAT(info.refused, testing::ElementsAre(1U));
    EXPECT_THAT(warnings, testing::Contains(HasSubstr("has another head (SHA-256 " + other.announced)));
    // It may come again; what it says then is no better.
    const auto joined = loop.fetch(*source, 1, make_batch(1, 2), 20s);
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().kind, FailureKind::not_found);
    EXPECT_THAT(joined.error().message, HasSubstr("has another head"));
}

TEST(HiddenStates, AnAnswerForAnotherHeadIsRefused) {
    std::size_t answers = 0;  // the handler's own: calls never overlap
    HiddenTeacher teacher;
    ScriptedHttpServer server([&](const SeenRequest& request) {
        answers += request.method == "POST" ? 1 : 0;
        teacher.answers_of = answers > 4 ? "0000" : "";  // restarted after the probe's three and one micro-batch
        return teacher(request);
    });
    Loop loop;
    const auto source = loop.teacher(spec_of(server.url())).value();
    ASSERT_TRUE(loop.run(source->probe(kVocabulary)));
    ASSERT_TRUE(loop.fetch(*source, 0, make_batch(1, 2), 20s));
    const auto answer = loop.fetch(*source, 0, make_batch(1, 2), 20s);
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().message, HasSubstr("for another head than the server had when it was probed: 0000"));
}

TEST(HeadFile, RefusesWhatIsNone) {
    const auto refused = [](const std::string& file) {
        const auto head = read_head_file(std::as_bytes(std::span(file)), {}, nullptr);
        return head ? "accepted" : head.error().message;
    };
    EXPECT_EQ(refused(head_file()), "accepted");
    EXPECT_THAT(refused(""), HasSubstr("not a safetensors file"));
    EXPECT_THAT(refused(std::string(8, '\xff')), HasSubstr("its header would have"));
    EXPECT_THAT(refused(head_file(1, "I64")), HasSubstr("not F16, BF16 or F32"));
    std::string garbled = head_file();
    garbled[9] = '!';
    EXPECT_THAT(refused(garbled), HasSubstr("with one tensor"));
}

}  // namespace
}  // namespace distilld
