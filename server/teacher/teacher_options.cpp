#include "server/teacher/teacher_options.hpp"

#include <CLI/CLI.hpp>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "base/join.hpp"

namespace distilld {
namespace {

constexpr std::uint32_t kMaxThreads = 4096;
constexpr std::uint64_t kMaxBatchTokens = 1ULL << 24U;
constexpr std::uint32_t kMaxSequences = 4096;
constexpr std::uint64_t kMaxCachedTokens = 1ULL << 32U;

template <class Number>
struct Bounds {
    Number min;
    Number max;
};

/// Visits the options by name, for the parser and for teacher_arguments().
template <class Visitor, class Options>
void visit_options(Visitor& v, Options& options) {
    v("--inputs", options.inputs, "of a TorchScript file: tensors that forward() takes, in this order");
    v("--outputs", options.outputs, "of a TorchScript file: names of the tensors that forward() returns");
    v("--listen", options.listen, "ADDRESS:PORT; port 0 = any free one");
    v("--host", options.hosts, "further name or address of the server that requests may use; may be repeated");
    v("--keys", options.keys, "folder with the keys of `distilld keys --data-dir DIR`: requests need one");
    v("--tls-certificate", options.tls_certificate, "PEM file with the certificate chain: HTTPS instead of HTTP");
    v("--tls-key", options.tls_key, "PEM file with its key");
    v("--tls-client-ca", options.tls_client_ca, "PEM file with authorities that clients' certificates need");
    v("--root", options.roots,
      "folder below which LoRA adapters may be loaded; may be repeated; none: anywhere, or with keys or beyond "
      "loopback "
      "the working folder and the model's");
    v("--threads", options.threads, "threads of one forward pass; 0 = all cores",
      Bounds<std::uint32_t>{0, kMaxThreads});
    v("--dtype", options.dtype, "arithmetic");
    v("--delay-ms", options.delay, "delay each answer by N milliseconds, to simulate a distant teacher");
    v("--max-batch-tokens", options.max_batch_tokens, "input positions computed together",
      Bounds<std::uint64_t>{1, kMaxBatchTokens});
    v("--max-sequences", options.max_sequences, "answers generated at once", Bounds<std::uint32_t>{1, kMaxSequences});
    v("--max-cached-tokens", options.max_cached_tokens,
      "positions (prompt and max_tokens) of all answers under way; their keys and values are memory",
      Bounds<std::uint64_t>{1, kMaxCachedTokens});
    v("--max-adapters", options.max_adapters, "LoRA adapters loaded at once", Bounds<std::uint32_t>{0, kMaxSequences});
    v("--model-name", options.model_name, "name of the model, as in /v2/models/NAME");
}

std::string check_name(const std::string& name) {
    return name.empty() || name.find('/') != std::string::npos ? "must be a name without '/'" : "";
}

/// Binds each option to its member.
struct Binder {
    CLI::App& command;

    void operator()(const char* name, std::string& text, const char* help) {
        auto* option = command.add_option(name, text, help)->capture_default_str();
        if (std::string(name) == "--model-name") {
            option->check(check_name);
        }
    }
    void operator()(const char* name, std::vector<std::string>& texts, const char* help) {
        command.add_option(name, texts, help)->delimiter(',')->allow_extra_args(false)->type_name("NAME");
    }
    void operator()(const char* name, std::filesystem::path& path, const char* help) {
        command.add_option(name, path, help)->type_name("PATH");
    }
    template <class Number>
    void operator()(const char* name, Number& number, const char* help, Bounds<Number> bounds) {
        command.add_option(name, number, help)->check(CLI::Range(bounds.min, bounds.max))->capture_default_str();
    }
    void operator()(const char* name, Dtype& dtype, const char* help) {
        std::map<std::string, Dtype> values;
        for (const auto& known : kDtypeNames) {
            values.emplace(known.text, known.value);
        }
        // The default description would show the enumerators' numbers.
        auto transformer = CLI::CheckedTransformer(values).description("{" + joined(names_of(kDtypeNames), ",") + "}");
        command.add_option(name, dtype, help)->type_name("TEXT")->transform(transformer);
    }
    void operator()(const char* name, std::chrono::milliseconds& time, const char* help) {
        command.add_option_function<std::uint32_t>(
            name, [&time](std::uint32_t milliseconds) { time = std::chrono::milliseconds(milliseconds); }, help);
    }
};

std::string text_of(const std::string& text) {
    return text;
}
std::string text_of(const std::vector<std::string>& texts) {
    return joined(texts, ",");
}
std::string text_of(const std::filesystem::path& path) {
    return path.string();
}
std::string text_of(Dtype dtype) {
    return name_of(kDtypeNames, dtype);
}
std::string text_of(std::chrono::milliseconds time) {
    return std::to_string(time.count());
}
template <class Number>
    requires std::is_integral_v<Number>
std::string text_of(Number number) {
    return std::to_string(number);
}

/// Collects name and text of each option.
struct Lister {
    std::vector<std::pair<std::string, std::string>> options;

    template <class T, class... More>
    void operator()(const char* name, const T& value, const More&... /*more*/) {
        options.emplace_back(name, text_of(value));
    }
};

std::vector<std::pair<std::string, std::string>> listed(const TeacherOptions& options) {
    Lister lister;
    visit_options(lister, options);
    return std::move(lister.options);
}

}  // namespace

void add_teacher_options(CLI::App& command, TeacherOptions& options) {
    command.add_option("MODEL", options.model, "Hugging Face folder, or TorchScript file")->required();
    Binder binder{command};
    visit_options(binder, options);
}

std::vector<std::string> teacher_arguments(const TeacherOptions& options) {
    const auto given = listed(options);
    const auto defaults = listed(TeacherOptions());
    std::vector<std::string> arguments{"teacher"};
    for (std::size_t i = 0; i < given.size(); ++i) {
        if (given[i] != defaults[i]) {
            arguments.push_back(given[i].first);
            arguments.push_back(given[i].second);
        }
    }
    arguments.emplace_back("--");
    arguments.push_back(options.model.string());
    return arguments;
}

}  // namespace distilld
