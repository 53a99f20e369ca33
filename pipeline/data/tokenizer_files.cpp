#include <boost/json/value.hpp>
#include <system_error>
#include <utility>

#include "base/files.hpp"
#include "base/json_text.hpp"
#include "pipeline/data/byte_tokenizer.hpp"
#include "pipeline/data/dataset.hpp"

namespace distilld {

namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTokenizerFile = 256U << 20;
constexpr std::size_t kMaxDepth = 32;

// A reader sees the old file or the whole new one.
Result<void> write_json(const fs::path& file, const json::value& content) {
    return write_file_atomically(file, to_text(content) + "\n");
}

json::object end_of_text_token() {
    return {{"content", kByteEndOfTextToken},
            {"single_word", false},
            {"lstrip", false},
            {"rstrip", false},
            {"normalized", false},
            {"special", true}};
}

json::object tokenizer_json() {
    json::object vocabulary;
    const auto alphabet = byte_level_alphabet();
    for (std::size_t byte = 0; byte < alphabet.size(); ++byte) {
        vocabulary.emplace(alphabet[byte], byte);
    }
    json::object added = end_of_text_token();
    added.emplace("id", kByteEndOfText);
    // ByteLevel's own regex would only cut the text into words first, which changes nothing without merges.
    const json::object byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", json::array{added}},
            {"normalizer", nullptr},
            {"pre_tokenizer", byte_level},
            {"post_processor", nullptr},
            {"decoder", byte_level},
            {"model", json::object{{"type", "BPE"},
                                   {"dropout", nullptr},
                                   {"unk_token", nullptr},
                                   {"continuing_subword_prefix", nullptr},
                                   {"end_of_word_suffix", nullptr},
                                   {"fuse_unk", false},
                                   {"byte_fallback", false},
                                   {"ignore_merges", false},
                                   {"vocab", std::move(vocabulary)},
                                   {"merges", json::array{}}}}};
}

json::object tokenizer_config_json() {
    return {{"tokenizer_class", "PreTrainedTokenizerFast"},
            {"eos_token", kByteEndOfTextToken},
            {"clean_up_tokenization_spaces", false},
            {"added_tokens_decoder", json::object{{std::to_string(kByteEndOfText), end_of_text_token()}}}};
}

// The reading side. Each check names the component it does not understand, with what stands there.

std::string shown(const json::value& value) {
    std::string text = to_text(value);
    if (text.size() > 60) {
        text = text.substr(0, 57) + "...";
    }
    return text;
}

Error not_understood(std::string_view component, const json::value& value) {
    return invalid_input(std::string(component) + " " + shown(value) +
                         " is not understood: only the byte tokenizer's form is");
}

const json::value* member(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains(name);
    return found != nullptr && !found->is_null() ? found : nullptr;
}

std::string_view type_of(const json::value& component) {
    const json::object* object = component.if_object();
    const json::value* type = object != nullptr ? member(*object, "type") : nullptr;
    return type != nullptr && type->is_string() ? std::string_view(type->get_string()) : std::string_view();
}

// True when `object` has `name` as `expected`, or not at all and that means the same.
bool flag_is(const json::object& object, std::string_view name, bool expected, bool when_absent) {
    const json::value* found = member(object, name);
    if (found == nullptr) {
        return expected == when_absent;
    }
    return found->is_bool() && found->get_bool() == expected;
}

Result<void> check_absent(const json::object& root, std::string_view component) {
    if (const json::value* found = member(root, component)) {
        return not_understood(component, *found);
    }
    return {};
}

Result<void> check_pre_tokenizer(const json::object& root) {
    const json::value* found = member(root, "pre_tokenizer");
    if (found == nullptr || type_of(*found) != "ByteLevel") {
        return not_understood("pre_tokenizer", found != nullptr ? *found : json::value());
    }
    if (!flag_is(found->get_object(), "add_prefix_space", false, true)) {
        return not_understood("pre_tokenizer", *found);
    }
    return {};
}

// ByteLevel as post-processor moves offsets only; transformers saves a template that consists of the text alone.
bool leaves_ids_alone(const json::value& processor) {
    if (type_of(processor) == "ByteLevel") {
        return true;
    }
    if (type_of(processor) != "TemplateProcessing") {
        return false;
    }
    const json::value* single = member(processor.get_object(), "single");
    return single != nullptr && *single == json::value{{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}};
}

Result<void> check_ends(const json::object& root) {
    const json::value* decoder = member(root, "decoder");
    if (decoder == nullptr || type_of(*decoder) != "ByteLevel") {
        return not_understood("decoder", decoder != nullptr ? *decoder : json::value());
    }
    const json::value* processor = member(root, "post_processor");
    if (processor != nullptr && !leaves_ids_alone(*processor)) {
        return not_understood("post_processor", *processor);
    }
    return {};
}

Result<void> check_vocabulary(const json::object& vocabulary) {
    const auto alphabet = byte_level_alphabet();
    for (std::size_t byte = 0; byte < alphabet.size(); ++byte) {
        const json::value* id = vocabulary.if_contains(alphabet[byte]);
        if (id == nullptr || !id->is_int64() || id->get_int64() != static_cast<std::int64_t>(byte)) {
            return invalid_input("model.vocab does not give byte " + std::to_string(byte) + " (\"" + alphabet[byte] +
                                 "\") its own value as id: only the byte tokenizer's form is understood");
        }
    }
    std::size_t bytes = vocabulary.size();
    for (const auto& [token, id] : vocabulary) {
        if (token == kByteEndOfTextToken && id.is_int64() && id.get_int64() == kByteEndOfText) {
            --bytes;
            continue;
        }
        if (id.is_int64() && id.get_int64() >= 0 && id.get_int64() < 256) {
            continue;
        }
        return not_understood("model.vocab entry", json::object{{token, id}});
    }
    if (bytes != alphabet.size()) {
        return invalid_input("model.vocab holds " + std::to_string(vocabulary.size()) +
                             " entries: only the byte tokenizer's 256 and its end of text are understood");
    }
    return {};
}

Result<void> check_model(const json::object& root) {
    const json::value* model = member(root, "model");
    if (model == nullptr || !model->is_object()) {
        return invalid_input("has no \"model\"");
    }
    const json::object& object = model->get_object();
    if (type_of(*model) != "BPE") {
        const json::value* type = member(object, "type");
        return not_understood("model.type", type != nullptr ? *type : json::value());
    }
    if (const json::value* merges = member(object, "merges")) {
        if (!merges->is_array() || !merges->get_array().empty()) {
            return not_understood("model.merges", *merges);
        }
    }
    for (const std::string_view name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
        const json::value* found = member(object, name);
        const bool empty = found == nullptr || (found->is_string() && found->get_string().empty()) ||
                           (found->is_double() && found->get_double() == 0.0);
        if (!empty) {
            return not_understood("model." + std::string(name), *found);
        }
    }
    // Every byte is in the vocabulary, so unk_token, fuse_unk, byte_fallback and ignore_merges never come to bear.
    const json::value* vocabulary = member(object, "vocab");
    if (vocabulary == nullptr || !vocabulary->is_object()) {
        return invalid_input("has no \"model.vocab\" object");
    }
    return check_vocabulary(vocabulary->get_object());
}

Result<void> check_added_tokens(const json::object& root) {
    const json::value* added = member(root, "added_tokens");
    if (added == nullptr || !added->is_array() || added->get_array().size() != 1) {
        return not_understood("added_tokens", added != nullptr ? *added : json::value());
    }
    const json::value& entry = added->get_array()[0];
    const json::object* token = entry.if_object();
    if (token == nullptr) {
        return not_understood("added_tokens", *added);
    }
    const json::value* id = member(*token, "id");
    const json::value* content = member(*token, "content");
    const bool expected = id != nullptr && id->is_int64() && id->get_int64() == kByteEndOfText && content != nullptr &&
                          content->is_string() && std::string_view(content->get_string()) == kByteEndOfTextToken &&
                          flag_is(*token, "single_word", false, false) && flag_is(*token, "lstrip", false, false) &&
                          flag_is(*token, "rstrip", false, false);
    if (!expected) {
        return not_understood("added_tokens", *added);
    }
    return {};
}

Result<void> check_form(const json::value& content) {
    const json::object* root = content.if_object();
    if (root == nullptr) {
        return invalid_input("is no JSON object");
    }
    if (auto checked = check_model(*root); !checked) {
        return checked;
    }
    for (const std::string_view component : {"normalizer", "truncation", "padding"}) {
        if (auto checked = check_absent(*root, component); !checked) {
            return checked;
        }
    }
    if (auto checked = check_pre_tokenizer(*root); !checked) {
        return checked;
    }
    if (auto checked = check_ends(*root); !checked) {
        return checked;
    }
    return check_added_tokens(*root);
}

Result<json::value> read_json(const fs::path& file) {
    auto text = read_text_file(file, kMaxTokenizerFile);
    if (!text) {
        return text.error();
    }
    auto content = parse_json_text(*text, kMaxDepth);
    if (!content) {
        return invalid_input(file.string() + ": is not valid JSON: " + content.error().reason);
    }
    return std::move(*content);
}

}  // namespace

Result<void> write_byte_tokenizer(const fs::path& folder) {
    std::error_code code;
    fs::create_directories(folder, code);
    if (code) {
        return io_error(folder.string() + ": cannot be created: " + code.message());
    }
    if (auto written = write_json(folder / "tokenizer.json", tokenizer_json()); !written) {
        return written;
    }
    if (auto written = write_json(folder / "tokenizer_config.json", tokenizer_config_json()); !written) {
        return written;
    }
    const json::object specials = {{"eos_token", kByteEndOfTextToken}};
    return write_json(folder / "special_tokens_map.json", specials);
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const fs::path& folder) {
    const fs::path file = folder / "tokenizer.json";
    std::error_code code;
    const bool there = fs::exists(file, code);
    if (code) {
        return io_error(file.string() + ": cannot be examined: " + code.message());
    }
    if (!there) {
        return std::unique_ptr<Tokenizer>();
    }
    auto content = read_json(file);
    if (!content) {
        return content.error();
    }
    if (auto checked = check_form(*content); !checked) {
        Error error = checked.error();
        error.message = file.string() + ": " + error.message;
        return error;
    }
    return make_byte_tokenizer();
}

}  // namespace distilld
