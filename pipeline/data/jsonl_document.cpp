#include "pipeline/data/jsonl_document.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/join.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/data/prompt_completion.hpp"
#include "pipeline/data/render_command.hpp"
#include "pipeline/data/teacher_document.hpp"
#include "pipeline/data/teacher_tokenizer.hpp"
#include "pipeline/data/token_fields.hpp"

namespace distilld {

const std::size_t kDocumentPadding = simdjson::SIMDJSON_PADDING;

namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kAccepted =
    R"(accepted are {"text": "…"}, {"prompt": "…", "completion": "…"}, {"instruction": "…", "output": "…"} and )"
    R"({"input_ids": […]} with optional "labels" of the same length)";

/// What to do about a file that is one JSON array.
std::string array_hint(std::string_view line) {
    return line.starts_with('[') ? "; if the file is an array, jq -c '.[]' makes lines of it" : "";
}

// The fields that decide the kind of a line. Of two fields with the same name, the first would silently win, so
// duplicates are refused.
struct Fields {
    std::optional<dom::element> text, input_ids, labels, attention_mask, messages, prompt, completion, teacher,
        teacher_prompt, teacher_input_ids, conversations, instruction, input, output, system, history;
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
                          {"teacher_input_ids", &fields.teacher_input_ids},
                          {"conversations", &fields.conversations},
                          {"instruction", &fields.instruction},
                          {"input", &fields.input},
                          {"output", &fields.output},
                          {"system", &fields.system},
                          {"history", &fields.history}};
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

bool is_filled(const std::optional<dom::element>& element) {
    std::string_view text;
    dom::array turns;
    if (!element || element->is_null() || (!element->get(text) && text.empty())) {
        return false;
    }
    return element->get(turns) || turns.size() > 0;
}

/// A conversation is a list of turns, in both of TRL's forms, of ShareGPT, or of Alpaca with what was said before.
bool is_conversation(const Fields& fields) {
    if (fields.messages || (fields.prompt && fields.prompt->is_array()) ||
        (fields.completion && fields.completion->is_array())) {
        return true;
    }
    if (fields.text || fields.prompt || fields.completion || fields.input_ids) {
        return false;
    }
    return fields.conversations || (fields.instruction && (is_filled(fields.system) || is_filled(fields.history)));
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
            return invalid_input(std::string("is not a JSON object: ") + simdjson::error_message(code) +
                                 array_hint(line));
        }
        dom::object object;
        if (root.get(object)) {
            return invalid_input("is " + type_name(root) + ", expected an object: " + std::string(kAccepted) +
                                 array_hint(line));
        }
        auto fields = collect(object);
        if (!fields) {
            return fields.error();
        }
        if (is_conversation(*fields)) {
            return invalid_input("is a conversation; convert it to tokens with a chat template first: " +
                                 render_command(file, options_.tokenizer_folder, options_.prompts) + " (docs/data.md)");
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
        if ((fields->text || pair || fields->instruction) && fields->labels) {
            return invalid_input("\"labels\" go with \"input_ids\", not with " + std::string(pair ? "\"prompt\""
                                                                                             : fields->text
                                                                                                 ? "\"text\""
                                                                                                 : "\"instruction\""));
        }
        if (pair) {
            return read_pair(*fields, document);
        }
        if (fields->text) {
            return read_text(*fields->text, document);
        }
        if (fields->instruction) {
            return read_alpaca(*fields, document);
        }
        return invalid_input("has neither \"text\" nor \"input_ids\": " + std::string(kAccepted));
    }

  private:
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
        if (fields.prompt.has_value() + fields.input_ids.has_value() + fields.instruction.has_value() != 1) {
            return invalid_input(
                R"(is not one prompt: {"prompt": "…"}, {"input_ids": […]} or {"instruction": "…", "input": "…"})");
        }
        Result<void> read;
        if (fields.input_ids) {
            read = read_token_ids("input_ids", *fields.input_ids, {options_.vocabulary_size}, document.ids);
        } else {
            const Result<std::string> text = prompt_text(fields);
            if (!text) {
                return text.error();
            }
            document.ids = tokenizer_->encode(*text);
            document.from_text = true;
            read = check_vocabulary("the prompt holds", document.ids);
        }
        if (!read) {
            return read;
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

    /// That of "instruction" as in Stanford Alpaca's training.
    [[nodiscard]] Result<std::string> prompt_text(const Fields& fields) const {
        if (!fields.instruction) {
            const Result<std::string_view> prompt = text_of("prompt", *fields.prompt);
            return prompt ? Result<std::string>(std::string(*prompt)) : prompt.error();
        }
        const Result<std::string_view> instruction = text_of("instruction", *fields.instruction);
        if (!instruction) {
            return instruction.error();
        }
        Result<std::string_view> input = std::string_view();
        if (fields.input && !fields.input->is_null()) {
            input = text_of("input", *fields.input);
        }
        return input ? Result<std::string>(alpaca_prompt(*instruction, *input)) : input.error();
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
        if (auto encoded = encode_pair(*prompt, *completion, "\"prompt\" and \"completion\"", document);
            !encoded || !fields.teacher_prompt) {
            return encoded;
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

    Result<void> read_alpaca(const Fields& fields, Document& document) {
        if (!fields.output) {
            return invalid_input("has an \"instruction\" and no \"output\"");
        }
        const Result<std::string> prompt = prompt_text(fields);
        if (!prompt) {
            return prompt.error();
        }
        const Result<std::string_view> output = text_of("output", *fields.output);
        if (!output) {
            return output.error();
        }
        return encode_pair(*prompt, *output, "\"instruction\" and \"output\"", document);
    }

    /// `fields`: the names of both, for errors.
    Result<void> encode_pair(std::string_view prompt, std::string_view completion, const std::string& fields,
                             Document& document) {
        encode_prompt_completion(*tokenizer_, prompt, completion, options_.completion_only_loss, document);
        document.from_text = true;
        if (auto checked = check_vocabulary(fields + " hold", document.ids);
            !checked || options_.teacher_tokenizer == nullptr) {
            return checked;
        }
        Document read;
        encode_prompt_completion(*options_.teacher_tokenizer->choice.tokenizer, prompt, completion,
                                 options_.completion_only_loss, read);
        align_tokenizers(document, std::move(read), options_);
        return {};
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
        if (auto read = read_token_ids("input_ids", *fields.input_ids, {options_.vocabulary_size}, document.ids);
            !read) {
            return read;
        }
        // Some writers use null for "no labels".
        if (fields.labels && !fields.labels->is_null()) {
            if (auto read = read_token_ids("labels", *fields.labels, {options_.vocabulary_size, true}, document.labels);
                !read) {
                return read;
            }
            if (document.labels.size() != document.ids.size()) {
                return invalid_input("\"labels\" has " + std::to_string(document.labels.size()) +
                                     " entries and \"input_ids\" has " + std::to_string(document.ids.size()));
            }
            document.has_labels = true;
        }
        if (fields.attention_mask) {
            if (auto checked = check_attention_mask(*fields.attention_mask); !checked) {
                return checked;
            }
        }
        if (!fields.teacher_input_ids) {
            return {};
        }
        if (auto read = read_token_ids("teacher_input_ids", *fields.teacher_input_ids, {options_.vocabulary_size},
                                       document.teacher_ids);
            !read) {
            return read;
        }
        if (document.teacher_ids.empty()) {
            return invalid_input("\"teacher_input_ids\" is empty");
        }
        return align(document, "teacher_input_ids");
    }

    const Tokenizer* tokenizer_;
    const DatasetOptions& options_;
    dom::parser parser_;
};

}  // namespace

std::unique_ptr<DocumentParser> make_document_parser(const Tokenizer* tokenizer, const DatasetOptions& options) {
    return std::make_unique<SimdjsonDocumentParser>(tokenizer, options);
}

}  // namespace distilld
