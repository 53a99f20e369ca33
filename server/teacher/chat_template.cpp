#include "server/teacher/chat_template.hpp"

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "server/supervisor/command.hpp"
#include "server/teacher/chat_renderer.hpp"

namespace distilld::teacher {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr std::size_t kMaxRendered = std::size_t{16} << 20U;
constexpr std::chrono::seconds kRenderDeadline{30};  // its own limit is 5 s of the processor
constexpr std::size_t kMaxAnswerDepth = 4;

constexpr std::array kSpecialTokens{"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};

const char* variable_of(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
    return value != nullptr ? value : otherwise;
}

/// What transformers passes to a template.
json::object variables_of(const ServedText& text, const CompletionRequest& request) {
    json::object variables;
    for (const char* name : kSpecialTokens) {
        const json::value* token = text.config.if_contains(name);
        if (const json::object* described = token != nullptr ? token->if_object() : nullptr) {
            token = described->if_contains("content");
        }
        if (token != nullptr && token->is_string()) {
            variables[name] = *token;
        }
    }
    for (const auto& argument : request.template_arguments) {
        variables[argument.key()] = argument.value();
    }
    variables["messages"] = request.messages;
    variables["add_generation_prompt"] = request.add_generation_prompt;
    variables.emplace("tools", nullptr);
    variables.emplace("documents", nullptr);
    return variables;
}

}  // namespace

asio::awaitable<Result<std::string>> render_chat(const ServedText& text, const CompletionRequest& request) {
    if (!text.chat_template) {
        co_return invalid_input(
            "the model's folder has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): "
            "send a text to /v1/completions");
    }
    const std::string path = variable_of("PATH", "/usr/local/bin:/usr/bin:/bin");
    const auto python = find_program("python3", path);
    const std::string needed = "a chat template is rendered by Python 3 with jinja2 (Debian: python3-jinja2): ";
    if (!python) {
        co_return Error{ErrorKind::internal, needed + "there is no python3 in PATH"};
    }
    Command command{.program = *python};
    command.arguments = {"-I", "-c", chat_renderer()};
    command.environment = {"PATH=" + path, std::string("HOME=") + variable_of("HOME", "/"), "LANG=C.UTF-8"};
    command.input =
        to_text(json::object{{"template", *text.chat_template}, {"variables", variables_of(text, request)}});
    command.deadline = kRenderDeadline;
    command.max_answer = kMaxRendered;
    const auto answer = co_await run_command(std::move(command));
    if (!answer) {
        co_return Error{ErrorKind::internal, "the chat template was not rendered: " + answer.error().message};
    }
    const auto read = parse_json_text(answer->text, kMaxAnswerDepth);
    const json::object* object = read ? read->if_object() : nullptr;
    if (object == nullptr) {
        co_return invalid_input("the chat template was not rendered, it may take too long (exit code " +
                                std::to_string(answer->exit_code) + ") " + answer->errors);
    }
    if (const json::value* missing = object->if_contains("missing")) {
        co_return Error{ErrorKind::internal, needed + std::string(missing->as_string())};
    }
    if (const json::value* error = object->if_contains("error")) {
        co_return invalid_input("the chat template refuses the messages: " + std::string(error->as_string()));
    }
    const json::value* rendered = object->if_contains("text");
    if (rendered == nullptr || !rendered->is_string()) {
        co_return invalid_input("the chat template was not rendered");
    }
    co_return std::string(rendered->get_string());
}

}  // namespace distilld::teacher
