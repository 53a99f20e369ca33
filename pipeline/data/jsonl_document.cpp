#include "pipeline/data/jsonl_document.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/join.hpp"
#include "base/shell_word.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/data/teacher_document.hpp"
#include "pipeline/data/teacher_tokenizer.hpp"

namespace distilld {

const std::size_t kDocumentPadding = simdjson::SIMDJSON_PADDING;

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kAccepted =
    R"(accepted are {"text": "…"}, {"prompt": "…", "completion": "…"} and {"input_ids": […]} with optional "labels" )"
    "of the same length";

std::string type_name(dom::element element) {
    switch (element.type()) {
        case dom::element_type::ARRAY:
            return "an array";
        case dom::element_type::OBJECT:
            return "an object";
        case dom::element_type::STRING:
            return "a string";
        case dom::element_type::BOOL:
            return "a boolean";
        case dom::element_type::NULL_VALUE:
            return "null";
        default:
            return "a number";
    }
}

// The fields that decide the kind of a line. Of two fields with the same name, the first would silently win, so
// duplicates are refused.
struct Fields {
    std::optional<dom::element> text, input_ids, labels, attention_mask, messages, prompt, completion, teacher,
        teacher_prompt, teacher_input_ids;
};

Result<Fields> collect(dom::object object) {
    Fields fields;
    struct Name {
        std::string_view name;
        std::optional<dom::element>* slot;
    };
    const Name names[] = {{"text", &fields.text},
                          {"input_ids", &fields.input_ids},
                          {"labels", &fields.labels},
                          {"attention_mask", &fields.attention_mask},
                          {"messages", &fields.messages},
                          {"prompt", &fields.prompt},
                          {"completion", &fields.completion},
                          {"teacher", &fields.teacher},
                          {"teacher_prompt", &fields.teacher_prompt},
                          {"teacher_input_ids", &fields.teacher_input_ids}};
    for (const dom::key_value_pair field : object) {
        for (const Name& known : names) {
            if (field.key != known.name) {
                continue;
            }
            if (known.slot->has_value()) {
                return invalid_input("field \"" + std::string(known.name) + "\" appears twice");
            }
            *known.slot = field.value;
        }
    }
    return fields;
}

/// The ids of both texts as one, then end_of_text unless they end with it.
std::vector<std::int32_t> ids_of_pair(const Tokenizer& tokenizer, std::string_view prompt,
                                      std::string_view completion) {
    std::string whole;
    whole.reserve(prompt.size() + completion.size());
    whole.append(prompt).append(completion);
    std::vector<std::int32_t> ids = tokenizer.encode(whole);
    const std::optional<std::int32_t> end = tokenizer.end_of_text();
    if (end && (ids.empty() || ids.back() != *end)) {
        ids.push_back(*end);
    }
    return ids;
}

class SimdjsonDocumentParser final : public DocumentParser {
  public:
    SimdjsonDocumentParser(const Tokenizer* tokenizer, const DatasetOptions& options)
        : tokenizer_(tokenizer), options_(options), parser_(std::max<std::size_t>(options.max_line_bytes, 4096)) {}

    Result<void> parse(std::string_view line, const std::filesystem::path& file, Document& document) override {
        document.ids.clear();
        document.labels.clear();
        document.has_labels = false;
        document.teacher_ids.clear();
        document.teacher_labels.clear();
        document.from_text = false;
        document.names_teacher = false;
        document.teacher = 0;

        dom::element root;
        // The caller's buffer is padded: no copy.
        if (const auto code = parser_.parse(line.data(), line.size(), false).get(root)) {
            if (code == simdjson::UTF8_ERROR) {
                return invalid_input("is not valid UTF-8");
            }
            if (code == simdjson::MEMALLOC) {
                return invalid_input("is too long: memory ran out");
            }
            return invalid_input(std::string("is not a JSON object: ") + simdjson::error_message(code));
        }
        dom::object object;
        if (root.get(object)) {
            return invalid_input("is " + type_name(root) + ", expected an object: " + std::string(kAccepted));
        }
        auto fields = collect(object);
        if (!fields) {
            return fields.error();
        }
        if (is_conversation(*fields)) {
            return invalid_input("is a conversation; convert it to tokens with a chat template first: " +
                                 render_command(file, options_.tokenizer_folder) + " (docs/data.md)");
        }
        if (options_.prompts) {
            return read_prompt(*fields, document);
        }
        if (auto known = read_teacher(fields->teacher, document); !known) {
            return known;
        }
        const bool pair = fields->prompt || fields->completion;
        if ((fields->text && (pair || fields->input_ids)) || (pair && fields->input_ids)) {
            return invalid_input("holds both " + std::string(fields->text ? "\"text\"" : "\"prompt\"") + " and " +
                                 (fields->input_ids ? "\"input_ids\"" : "\"prompt\"") + ": " + std::string(kAccepted));
        }
        if (auto told = check_teacher_fields(*fields, pair); !told) {
            return told;
        }
        if (fields->input_ids) {
            return read_ids(*fields, document);
        }
        if ((fields->text || pair) && fields->labels) {
            return invalid_input("\"labels\" go with \"input_ids\", not with " +
                                 std::string(pair ? "\"prompt\"" : "\"text\""));
        }
        if (pair) {
            return read_pair(*fields, document);
        }
        if (fields->text) {
            return read_text(*fields->text, document);
        }
        return invalid_input("has neither \"text\" nor \"input_ids\": " + std::string(kAccepted));
    }

  private:
    /// A conversation is a list of turns, in both of TRL's forms.
    static bool is_conversation(const Fields& fields) {
        return fields.messages || (fields.prompt && fields.prompt->is_array()) ||
               (fields.completion && fields.completion->is_array());
    }

    Result<void> read_teacher(const std::optional<dom::element>& element, Document& document) const {
        const std::vector<std::string>& teachers = options_.teachers;
        std::string_view name = kDefaultTeacher;
        const bool named = element && !element->is_null();
        if (teachers.empty()) {
            document.names_teacher = named && element->is_string();
            return {};
        }
        if (named && element->get(name)) {
            return invalid_input("\"teacher\" is " + type_name(*element) + ", expected a name");
        }
        const auto found = std::find(teachers.begin(), teachers.end(), name);
        if (found == teachers.end()) {
            const std::string what = named ? "names the teacher \"" + std::string(name) + "\", of which"
                                           : "names no teacher, and of one called \"" + std::string(name) + "\"";
            return invalid_input(what + " /teachers knows nothing; it has " + joined(teachers));
        }
        document.teacher = static_cast<std::size_t>(found - teachers.begin());
        return {};
    }

    [[nodiscard]] Result<void> check_teacher_fields(const Fields& fields, bool pair) const {
        if (options_.teacher_tokenizer != nullptr && (fields.input_ids || fields.teacher_prompt)) {
            return invalid_input(std::string(fields.input_ids ? "\"input_ids\"" : "\"teacher_prompt\"") +
                                 " cannot be used with /teacher/tokenizer, which reads the student's text: give "
                                 "\"text\", or \"prompt\" and \"completion\"");
        }
        if (fields.teacher_prompt && !pair) {
            return invalid_input("\"teacher_prompt\" goes with \"prompt\" and \"completion\"");
        }
        if (fields.teacher_input_ids && !fields.input_ids) {
            return invalid_input("\"teacher_input_ids\" goes with \"input_ids\"");
        }
        if (options_.packing && (fields.teacher_prompt || fields.teacher_input_ids)) {
            return invalid_input(std::string(fields.teacher_prompt ? "\"teacher_prompt\"" : "\"teacher_input_ids\"") +
                                 " needs documents that are read by themselves: set /dataset/packing to documents or "
                                 "false");
        }
        return {};
    }

    Result<void> align(Document& document, const char* field) {
        if (align_with_teacher(document)) {
            return {};
        }
        return invalid_input("nothing is left to learn: \"" + std::string(field) +
                             "\" makes the teacher read a document that does not end with the same tokens");
    }

    Result<void> read_text(dom::element element, Document& document) {
        const Result<std::string_view> text = text_of("text", element);
        if (!text) {
            return text.error();
        }
        document.ids = tokenizer_->encode(*text);
        document.from_text = true;
        if (auto checked = check_vocabulary("\"text\" holds", document.ids);
            !checked || options_.teacher_tokenizer == nullptr) {
            return checked;
        }
        Document read;
        read.ids = options_.teacher_tokenizer->choice.tokenizer->encode(*text);
        align_tokenizers(document, std::move(read), options_);
        return {};
    }

    Result<void> read_prompt(const Fields& fields, Document& document) {
        if (fields.prompt.has_value() == fields.input_ids.has_value()) {
            return invalid_input(R"(has )" + std::string(fields.prompt ? "both" : "neither") +
                                 R"( "prompt" and "input_ids": a prompt is {"prompt": "…"} or {"input_ids": […]})");
        }
        if (fields.input_ids) {
            if (auto read = read_integers("input_ids", *fields.input_ids, false, document.ids); !read) {
                return read;
            }
        } else {
            const Result<std::string_view> text = text_of("prompt", *fields.prompt);
            if (!text) {
                return text.error();
            }
            document.ids = tokenizer_->encode(*text);
            document.from_text = true;
            if (auto checked = check_vocabulary("\"prompt\" holds", document.ids); !checked) {
                return checked;
            }
        }
        if (document.ids.empty()) {
            return invalid_input("has an empty prompt");
        }
        document.labels.assign(document.ids.size(), kIgnoredLabel);
        document.ids.push_back(document.ids.back());
        document.labels.push_back(document.ids.back());
        document.has_labels = true;
        return {};
    }

    Result<void> read_pair(const Fields& fields, Document& document) {
        if (!fields.prompt || !fields.completion) {
            return invalid_input(fields.prompt ? "has a \"prompt\" and no \"completion\""
                                               : "has a \"completion\" and no \"prompt\"");
        }
        const Result<std::string_view> prompt = text_of("prompt", *fields.prompt);
        if (!prompt) {
            return prompt.error();
        }
        const Result<std::string_view> completion = text_of("completion", *fields.completion);
        if (!completion) {
            return completion.error();
        }
        encode_prompt_completion(*tokenizer_, *prompt, *completion, options_.completion_only_loss, document);
        document.from_text = true;
        if (auto checked = check_vocabulary("\"prompt\" and \"completion\" hold", document.ids);
            !checked || (!fields.teacher_prompt && options_.teacher_tokenizer == nullptr)) {
            return checked;
        }
        if (options_.teacher_tokenizer != nullptr) {
            Document read;
            encode_prompt_completion(*options_.teacher_tokenizer->choice.tokenizer, *prompt, *completion,
                                     options_.completion_only_loss, read);
            align_tokenizers(document, std::move(read), options_);
            return {};
        }
        const Result<std::string_view> teacher_prompt = text_of("teacher_prompt", *fields.teacher_prompt);
        if (!teacher_prompt) {
            return teacher_prompt.error();
        }
        document.teacher_ids = ids_of_pair(*tokenizer_, *teacher_prompt, *completion);
        if (auto checked = check_vocabulary("\"teacher_prompt\" and \"completion\" hold", document.teacher_ids);
            !checked) {
            return checked;
        }
        return align(document, "teacher_prompt");
    }

    /// The string of a text field; an error without a tokenizer.
    Result<std::string_view> text_of(const std::string& name, dom::element element) const {
        std::string_view text;
        if (element.get(text)) {
            return invalid_input("\"" + name + "\" is " + type_name(element) + ", expected a string");
        }
        // simdjson's string decoder turns a lone low surrogate into three bytes that are not UTF-8.
        if (!simdjson::validate_utf8(text)) {
            return invalid_input("\"" + name + "\" holds half a surrogate pair");
        }
        if (tokenizer_ == nullptr) {
            const std::string& reason = options_.no_tokenizer_reason;
            return invalid_input("\"" + name + "\" cannot be read" +
                                 (reason.empty() ? ": there is no tokenizer" : ": " + reason));
        }
        return text;
    }

    Result<void> check_vocabulary(const std::string& who, const std::vector<std::int32_t>& ids) const {
        const std::uint32_t vocabulary = options_.vocabulary_size;
        for (const std::int32_t id : ids) {
            if (vocabulary != 0 && static_cast<std::uint32_t>(id) >= vocabulary) {
                return invalid_input(who + " token id " + std::to_string(id) + ", outside the vocabulary of " +
                                     std::to_string(vocabulary));
            }
        }
        return {};
    }

    Result<void> read_ids(const Fields& fields, Document& document) {
        if (auto read = read_integers("input_ids", *fields.input_ids, false, document.ids); !read) {
            return read;
        }
        // Some writers use null for "no labels".
        if (fields.labels && !fields.labels->is_null()) {
            if (auto read = read_integers("labels", *fields.labels, true, document.labels); !read) {
                return read;
            }
            if (document.labels.size() != document.ids.size()) {
                return invalid_input("\"labels\" has " + std::to_string(document.labels.size()) +
                                     " entries and \"input_ids\" has " + std::to_string(document.ids.size()));
            }
            document.has_labels = true;
        }
        if (fields.attention_mask) {
            if (auto checked = check_mask(*fields.attention_mask); !checked) {
                return checked;
            }
        }
        if (!fields.teacher_input_ids) {
            return {};
        }
        if (auto read = read_integers("teacher_input_ids", *fields.teacher_input_ids, false, document.teacher_ids);
            !read) {
            return read;
        }
        if (document.teacher_ids.empty()) {
            return invalid_input("\"teacher_input_ids\" is empty");
        }
        return align(document, "teacher_input_ids");
    }

    Result<void> read_integers(std::string_view name, dom::element element, bool may_be_ignored,
                               std::vector<std::int32_t>& out) {
        dom::array array;
        const std::string quoted = "\"" + std::string(name) + "\"";
        if (element.get(array)) {
            return invalid_input(quoted + " is " + type_name(element) + ", expected an array of integers");
        }
        for (const dom::element entry : array) {
            const auto where = [&] { return std::string(name) + "[" + std::to_string(out.size()) + "]"; };
            std::int64_t value = 0;
            if (!entry.is_int64() || entry.get(value)) {
                return invalid_input(where() + " is " + (entry.is_number() ? "no 64-bit integer" : type_name(entry)) +
                                     ", expected a token id");
            }
            if (value == kIgnoredLabel && may_be_ignored) {
                out.push_back(kIgnoredLabel);
                continue;
            }
            if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
                return invalid_input(where() + " is " + std::to_string(value) + ", not a token id" +
                                     (may_be_ignored ? " and not -100 (no loss)" : ""));
            }
            if (options_.vocabulary_size != 0 && value >= options_.vocabulary_size) {
                return invalid_input(where() + " is " + std::to_string(value) + ", outside the vocabulary of " +
                                     std::to_string(options_.vocabulary_size));
            }
            out.push_back(static_cast<std::int32_t>(value));
        }
        return {};
    }

    // Padding inside the data would be trained on: rows are padded here, after cutting.
    static Result<void> check_mask(dom::element element) {
        dom::array array;
        if (element.get(array)) {
            return {};
        }
        for (const dom::element entry : array) {
            std::int64_t value = 0;
            if (!entry.get(value) && value == 0) {
                return invalid_input("\"attention_mask\" holds zeros: give the tokens without padding");
            }
        }
        return {};
    }

    const Tokenizer* tokenizer_;
    const DatasetOptions& options_;
    dom::parser parser_;
};

std::filesystem::path beside(const std::filesystem::path& file) {
    std::string name = file.filename().string();
    for (const std::string_view ending : {".gz", ".zst", ".jsonl", ".json"}) {
        if (name.size() > ending.size() && name.ends_with(ending)) {
            name.resize(name.size() - ending.size());
        }
    }
    return file.parent_path() / (name + ".ids.jsonl");
}

/// Path of the program, in an installed package or in a build of this repository.
std::string script() {
    constexpr const char* kScript = "tools/render_chat.py";
    std::error_code failed;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
    for (const char* root : {"../share/doc/distilld", "../../.."}) {
        const auto file = (folder / root / kScript).lexically_normal();
        if (!failed && std::filesystem::exists(file, failed)) {
            return shell_word(file.string());
        }
    }
    return kScript;
}

}  // namespace

std::unique_ptr<DocumentParser> make_document_parser(const Tokenizer* tokenizer, const DatasetOptions& options) {
    return std::make_unique<SimdjsonDocumentParser>(tokenizer, options);
}

void encode_prompt_completion(const Tokenizer& tokenizer, std::string_view prompt, std::string_view completion,
                              bool completion_only, Document& document) {
    document.ids = ids_of_pair(tokenizer, prompt, completion);
    document.has_labels = completion_only;
    if (!completion_only) {
        return;
    }
    const std::vector<std::int32_t> given = tokenizer.encode(prompt);
    const auto [differs, unused] = std::ranges::mismatch(document.ids, given);
    document.labels = document.ids;
    std::fill_n(document.labels.begin(), differs - document.ids.begin(), kIgnoredLabel);
}

std::string render_command(const std::filesystem::path& file, const std::string& tokenizer_folder) {
    const std::string folder = tokenizer_folder.empty() ? "TOKENIZER_FOLDER" : shell_word(tokenizer_folder);
    return "python3 " + script() + " --tokenizer " + folder + " " + shell_word(file.string()) + " " +
           shell_word(beside(file).string());
}

}  // namespace distilld
