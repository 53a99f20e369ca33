// Requests of a served model in OpenAI's shapes, and the texts of its answers.
#include <algorithm>
#include <boost/json/object.hpp>
#include <memory>

#include "base/utf8.hpp"
#include "server/teacher/answer_text.hpp"
#include "server/teacher/completion_request.hpp"
#include "server/teacher/teacher_codec.hpp"
#include "tests/fuzz/targets.hpp"

namespace distilld::fuzz {
namespace {

using namespace teacher;

template <class T>
bool taken(const Read<T>& read) {
    if (!read) {
        demand(!read.error().detail.empty() && !read.error().pointer.empty(), "a refusal names a field");
    }
    return static_cast<bool>(read);
}

void check(const Read<CompletionRequest>& read) {
    if (!taken(read)) {
        return;
    }
    demand(read->n >= 1 && read->prompts.size() * read->n <= kMaxAnswers, "answers are bounded");
    demand(read->chat == read->prompts.empty() && read->chat == !read->messages.empty(), "there is a prompt");
    demand(read->temperature >= 0 && read->top_p > 0 && read->top_p <= 1, "sampling is in range");
    demand(read->logprobs.value_or(0) <= kMaxLogprobs, "likeliest tokens are bounded");
    for (const Prompt& prompt : read->prompts) {
        for (const std::int32_t id : prompt.ids) {
            demand(id >= 0, "ids are not negative");
        }
    }
}

}  // namespace

void read_completions(std::string_view input) {
    if (const auto body = read_body(input)) {
        check(read_completion(*body));
        check(read_chat(*body));
        check(read_tokenize(*body));
        static_cast<void>(taken(read_detokenize(*body)));
        static_cast<void>(taken(read_adapter(*body, true)));
        static_cast<void>(taken(read_weights(*body)));
        static_cast<void>(is_seed(*body));
    }
    // Each byte is a token; the first line is a stop text.
    const std::string_view line = input.substr(0, input.find('\n'));
    const std::string_view stop = is_utf8(line) ? line : std::string_view();  // as in JSON
    static const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
    AnswerText text(*tokenizer, {}, {std::string(stop)}, true);
    std::string said;
    for (const char byte : input.substr(std::min(input.size(), line.size() + 1))) {
        said += text.add(static_cast<unsigned char>(byte));
        demand(is_utf8(said), "a piece is text");
    }
    said += text.finish();
    demand(is_utf8(said), "an answer is text");
    demand(stop.empty() || said.find(stop) == std::string::npos, "an answer ends before its stop text");
}

std::vector<std::string> completion_seeds() {
    return {R"({"prompt":"a","max_tokens":3,"n":2,"stop":["x"],"logprobs":1,"echo":true,"stream":true,"seed":-1})",
            R"({"prompt":[[1,2],"b"],"temperature":0.5,"top_p":0.9,"top_k":-1,"stop_token_ids":[3],"best_of":1})",
            R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"logprobs":true,"top_logprobs":2})",
            R"({"tokens":[1,2]})",
            R"({"lora_name":"a","lora_path":"b"})",
            "ab\nxaab\xE2\x82"};
}

}  // namespace distilld::fuzz
