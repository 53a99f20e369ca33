// Fuzzes what the teacher client makes of a server's answers: fuzz_teacher_answers --target=PROTOCOL [libFuzzer's
// options] [corpus]. tests/fuzz/teacher_seeds.py makes the first corpus from the recordings and says how inputs
// are written; run.py runs it.
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/probe/probe_checks.hpp"
#include "pipeline/teacher/protocols/registry.hpp"
#include "pipeline/teacher/request_parts.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

constexpr std::uint32_t kVocabulary = 512;
constexpr std::uint32_t kWidths[] = {0, 5, 20, kVocabulary};
constexpr unsigned kStatuses[] = {200, 200, 200, 400, 401, 404, 500, 503};
constexpr std::string_view kBorder = "\n\x1e\n";

const TeacherProtocolRow* protocol_under_test = nullptr;

/// The prompts that the recordings answer (tests/fixtures/teachers/reference.json).
constexpr std::int32_t kPrompts[3][10] = {{54, 74, 271, 345, 417, 331, 289, 414, 491, 29},
                                          {345, 417, 331, 289, 414, 491, 29, 316, 274, 290},
                                          {29, 54, 74, 271, 345, 417, 331, 289, 414, 491}};

/// An input: a byte of options, then answers with kBorder between them. Each answer is a byte of the status, a line
/// with the values of the headers that were asked for (empty = not sent), and the body.
class Answers {
  public:
    explicit Answers(std::string_view text) : rest_(text) {}

    [[nodiscard]] HttpResponse next(const HttpRequest& request) {
        const std::size_t end = rest_.find(kBorder);
        std::string_view answer = rest_.substr(0, end);
        rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + kBorder.size());
        HttpResponse response;
        response.status = 200;
        if (!answer.empty()) {
            response.status = kStatuses[static_cast<unsigned char>(answer.front()) % std::size(kStatuses)];
            answer.remove_prefix(1);
        }
        const std::string_view header = answer.substr(0, answer.find('\n'));
        answer.remove_prefix(std::min(answer.size(), header.size() + 1));
        if (!header.empty()) {
            for (const std::string& name : request.answer_headers) {
                response.headers.push_back({name, std::string(header)});
            }
        }
        response.content_type = kJsonContentType;
        response.body = std::make_shared<BodyBuffer>();
        response.body->resize(answer.size());
        if (!answer.empty()) {
            std::memcpy(response.body->data(), answer.data(), answer.size());
        }
        return response;
    }

  private:
    std::string_view rest_;
};

/// Prompts as inputs, with the token that follows the last as its label; or whole, and nothing follows.
std::shared_ptr<const TokenBatch> batch_of(std::uint32_t rows, bool whole) {
    auto batch = std::make_shared<TokenBatch>();
    const std::uint32_t tokens = std::size(kPrompts[0]);
    batch->rows = rows;
    batch->columns = whole ? tokens : tokens - 1;
    for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t column = 0; column < batch->columns; ++column) {
            batch->input_ids.push_back(kPrompts[row][column]);
            batch->labels.push_back(column + 1 < tokens ? kPrompts[row][column + 1] : kIgnoredLabel);
        }
        batch->lengths.push_back(static_cast<std::int32_t>(batch->columns));
    }
    batch->target_tokens = std::uint64_t{rows} * (tokens - 1);
    return batch;
}

void demand(bool holds, const char* what) {
    if (!holds) {
        std::fprintf(stderr, "broken promise: %s\n", what);
        std::abort();
    }
}

/// What decode() promises: shapes. Every element is read by find_defect().
void check(const TeacherTargets& targets, const RequestPart& part) {
    demand(targets.rows == part.rows && targets.columns == part.columns, "targets have the part's shape");
    const std::size_t positions = std::size_t{targets.rows} * targets.columns;
    const std::size_t elements = positions * targets.width;
    demand(targets.values.bytes.size() == elements * element_size(targets.values.type), "values have their size");
    if (targets.kind == TeacherTargets::Kind::topk) {
        demand(targets.ids.bytes.size() == elements * element_size(targets.ids.type), "ids have their size");
        demand(targets.tail.bytes.empty() || targets.tail.bytes.size() == positions * sizeof(float),
               "tails have their size");
    }
    demand(targets.loss_mask.bytes.empty() || targets.loss_mask.bytes.size() == positions, "marks have their size");
    // What the probe asks of rows it asks only of those that have no defect.
    if (!find_defect(targets, kVocabulary)) {
        static_cast<void>(normalisation_defect(targets, kVocabulary));
        static_cast<void>(alignment_defect(targets));
        static_cast<void>(looks_like_half_precision(targets));
    }
}

FetchResult<EndpointAnswer> ask_with(const TeacherCodec& codec, const TokenBatch& tokens, Answers& answers) {
    const auto failed = [](const Error& error) { return FetchError{FailureKind::bad_response, error.message, {}}; };
    const auto parts = codec.plan_requests(tokens);
    if (!parts) {
        return failed(parts.error());
    }
    std::vector<AnsweredPart> answered;
    EndpointAnswer answer;
    for (const RequestPart& part : *parts) {
        const auto request = codec.make_request(tokens, part);
        if (!request) {
            return failed(request.error());
        }
        HttpResponse response = answers.next(*request);
        auto targets = codec.decode(response, tokens, part);
        if (!targets) {
            demand(!targets.error().message.empty(), "a refusal has words");
            return failed(targets.error());
        }
        check(*targets, part);
        answered.push_back({part, std::move(*targets)});
        response.body.reset();
        answer.responses.push_back(std::move(response));
    }
    auto joined = join_targets(tokens, std::move(answered));
    if (!joined) {
        return failed(joined.error());
    }
    check(*joined, whole_batch(tokens));
    if (const auto defect = find_defect(*joined, kVocabulary)) {
        return FetchError{FailureKind::bad_response, *defect, {}};
    }
    static_cast<void>(find_missing_row(*joined, tokens));
    answer.targets = std::move(*joined);
    return answer;
}

class FuzzedDialogue final : public ProbeDialogue {
  public:
    FuzzedDialogue(Answers& answers, std::shared_ptr<const TokenBatch> tokens)
        : answers_(answers), tokens_(std::move(tokens)) {}

    std::string page(std::string_view target) const override { return "http://server" + std::string(target); }

    asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest request, std::optional<unsigned>) override {
        if (++asked_ > kMaxQuestions) {
            co_return FetchError{FailureKind::timeout, "enough", {}};
        }
        co_return answers_.next(request);
    }

    asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherCodec> codec) override {
        if (++asked_ > kMaxQuestions) {
            co_return FetchError{FailureKind::timeout, "enough", {}};
        }
        co_return ask_with(*codec, *tokens_, answers_);
    }

  private:
    static constexpr int kMaxQuestions = 64;  // a probe asks fewer
    Answers& answers_;
    std::shared_ptr<const TokenBatch> tokens_;
    int asked_ = 0;
};

void run(std::string_view input) {
    if (input.empty()) {
        return;
    }
    const auto options = static_cast<unsigned char>(input.front());
    input.remove_prefix(1);
    TargetsWanted wanted;
    wanted.top_k = kWidths[options & 3U];
    wanted.vocabulary = kVocabulary;
    const std::uint32_t rows = 1 + (options >> 2U & 3U) % std::size(kPrompts);
    const auto tokens = batch_of(rows, (options & 16U) != 0);
    const bool negotiates = (options & 32U) != 0;
    ProtocolSettings settings;
    settings.url = parse_endpoint_url("http://server", default_path_for(*protocol_under_test, "teacher")).value();
    settings.model = "teacher";
    settings.buffers = std::make_shared<BufferPool>();
    const auto adapter = protocol_under_test->make_adapter(settings).value();
    Answers answers(input);
    if (!negotiates) {
        const auto codec = adapter->assumed_codec(wanted);
        if (codec) {
            static_cast<void>(ask_with(**codec, *tokens, answers));
        }
        return;
    }
    FuzzedDialogue dialogue(answers, tokens);
    asio::io_context io;
    std::exception_ptr thrown;
    asio::co_spawn(io, adapter->negotiate(dialogue, wanted),
                   [&](std::exception_ptr failure, const FetchResult<Negotiated>& learnt) {
                       thrown = std::move(failure);
                       if (!thrown && !learnt) {
                           demand(!learnt.error().message.empty(), "a refusal has words");
                       }
                   });
    io.run();
    if (thrown) {
        std::rethrow_exception(thrown);
    }
}

}  // namespace
}  // namespace distilld

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    constexpr std::string_view kOption = "--target=";
    for (int i = 1; i < *argc; ++i) {
        const std::string_view argument = (*argv)[i];
        if (argument == "--list") {
            for (const auto& row : distilld::teacher_protocols()) {
                std::puts(std::string(row.name).c_str());
            }
            std::exit(0);
        }
        if (argument.substr(0, kOption.size()) == kOption) {
            for (const auto& row : distilld::teacher_protocols()) {
                if (row.name == argument.substr(kOption.size())) {
                    distilld::protocol_under_test = &row;
                }
            }
        }
    }
    if (distilld::protocol_under_test == nullptr) {
        std::fputs("fuzz_teacher_answers: --target=NAME names no protocol\n", stderr);
        std::exit(2);
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    distilld::run({reinterpret_cast<const char*>(data), size});
    return 0;
}
