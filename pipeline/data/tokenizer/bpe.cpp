#include "pipeline/data/tokenizer/bpe.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <utility>

#include "base/utf8.hpp"
#include "pipeline/data/tokenizer/byte_tokenizer.hpp"
#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxScanned = 48;  // longer words are joined with a heap

/// Turns adjacent characters outside the vocabulary into one unknown token, or into one each.
class Unknown {
  public:
    Unknown(const BpeVocabulary& parts, std::vector<std::int32_t>& ids) : parts_(parts), ids_(ids) {}
    ~Unknown() { flush(); }
    Unknown(const Unknown&) = delete;
    Unknown& operator=(const Unknown&) = delete;

    void add() {
        if (parts_.unknown == kNoToken) {
            return;  // dropped, as in `tokenizers`
        }
        if (!parts_.fuse_unknown) {
            flush();
        }
        waits_ = true;
    }
    void flush() {
        if (std::exchange(waits_, false)) {
            ids_.push_back(parts_.unknown);
        }
    }

  private:
    const BpeVocabulary& parts_;
    std::vector<std::int32_t>& ids_;
    bool waits_ = false;
};

struct Candidate {
    std::uint32_t rank;
    std::uint32_t left;
    std::int32_t joined;
    bool operator<(const Candidate& other) const {  // the queue's top is the largest
        return rank != other.rank ? rank > other.rank : left > other.left;
    }
};

/// An entry of a linked list; symbols joined to the previous one drop out.
struct Symbol {
    std::int32_t id;
    std::int32_t previous;
    std::int32_t next;
};

boost::unordered_flat_map<std::string, char> bytes_by_character() {
    boost::unordered_flat_map<std::string, char> bytes;
    const auto alphabet = byte_level_alphabet();
    for (std::size_t byte = 0; byte < alphabet.size(); ++byte) {
        bytes.emplace(alphabet[byte], static_cast<char>(byte));
    }
    return bytes;
}

}  // namespace

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (parts_->ignore_merges) {
        const auto whole = parts_->texts.find(word);
        if (whole != parts_->texts.end()) {
            ids.push_back(whole->second);
            return;
        }
    }
    const std::size_t first = ids.size();
    parts_->byte_level ? begin_with_bytes(word, ids) : begin_with_characters(word, ids);
    const std::size_t count = ids.size() - first;
    if (count > kMaxScanned) {
        join_by_heap(ids, first);
    } else if (count > 1) {
        join_by_scan(ids, first);
    }
}

std::optional<std::string_view> Bpe::token(std::int32_t id) const {
    const auto index = static_cast<std::size_t>(id);
    if (id < 0 || index >= parts_->tokens.size() || parts_->ids.find(parts_->tokens[index]) == parts_->ids.end()) {
        return std::nullopt;
    }
    return parts_->tokens[index];
}

std::string Bpe::text(std::int32_t id) const {
    constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
    const std::optional<std::string_view> written = token(id);
    if (!written) {
        return {};
    }
    if (parts_->byte_level) {
        return parts_->bytes[static_cast<std::size_t>(id)];
    }
    const auto byte = std::ranges::find(parts_->fallback, id);
    if (parts_->has_fallback && byte != parts_->fallback.end()) {
        return {static_cast<char>(byte - parts_->fallback.begin())};
    }
    std::string text;
    std::size_t from = 0;
    for (std::size_t space = written->find(kSpace); space != std::string_view::npos;
         space = written->find(kSpace, from)) {
        text.append(*written, from, space - from).push_back(' ');
        from = space + kSpace.size();
    }
    return text.append(*written, from);
}

std::optional<std::int32_t> Bpe::id(std::string_view token) const {
    const auto found = parts_->ids.find(token);
    return found != parts_->ids.end() ? std::optional(found->second) : std::nullopt;
}

void Bpe::begin_with_bytes(std::string_view word, std::vector<std::int32_t>& ids) const {
    Unknown unknown(*parts_, ids);
    for (const char byte : word) {
        const std::int32_t id = parts_->of_byte[static_cast<unsigned char>(byte)];
        if (id == kNoToken) {
            unknown.add();
            continue;
        }
        unknown.flush();
        ids.push_back(id);
    }
}

void Bpe::begin_with_characters(std::string_view word, std::vector<std::int32_t>& ids) const {
    Unknown unknown(*parts_, ids);
    while (!word.empty()) {
        const std::size_t size = std::max<std::size_t>(utf8_sequence(word), 1);
        const std::string_view character = word.substr(0, size);
        word.remove_prefix(size);
        const auto found = parts_->texts.find(character);
        if (found != parts_->texts.end()) {
            unknown.flush();
            ids.push_back(found->second);
        } else if (parts_->has_fallback && falls_back(character)) {
            for (const char byte : character) {
                ids.push_back(parts_->fallback[static_cast<unsigned char>(byte)]);
            }
        } else {
            unknown.add();
        }
    }
}

bool Bpe::falls_back(std::string_view character) const {
    return std::all_of(character.begin(), character.end(),
                       [this](char byte) { return parts_->fallback[static_cast<unsigned char>(byte)] != kNoToken; });
}

BpeMerge Bpe::merge_of(std::int32_t left, std::int32_t right) const {
    const auto found = parts_->merges.find(BpeVocabulary::pair_of(left, right));
    return found != parts_->merges.end() ? found->second : BpeMerge{};
}

void Bpe::join_by_scan(std::vector<std::int32_t>& ids, std::size_t first) const {
    std::array<BpeMerge, kMaxScanned> merges;  // [i] of symbols i and i + 1
    std::int32_t* symbols = ids.data() + first;
    std::size_t count = ids.size() - first;
    for (std::size_t i = 0; i + 1 < count; ++i) {
        merges[i] = merge_of(symbols[i], symbols[i + 1]);
    }
    while (count > 1) {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < count; ++i) {
            best = merges[i].rank < merges[best].rank ? i : best;
        }
        if (merges[best].rank == kNoRank) {
            break;
        }
        symbols[best] = merges[best].joined;
        std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
        std::copy(merges.data() + best + 1, merges.data() + count - 1, merges.data() + best);
        --count;
        if (best + 1 < count) {
            merges[best] = merge_of(symbols[best], symbols[best + 1]);
        }
        if (best > 0) {
            merges[best - 1] = merge_of(symbols[best - 1], symbols[best]);
        }
    }
    ids.resize(first + count);
}

void Bpe::join_by_heap(std::vector<std::int32_t>& ids, std::size_t first) const {
    const std::size_t count = ids.size() - first;
    std::vector<Symbol> symbols(count);
    for (std::size_t i = 0; i < count; ++i) {
        symbols[i] = {ids[first + i], static_cast<std::int32_t>(i) - 1, static_cast<std::int32_t>(i) + 1};
    }
    symbols.back().next = kNoToken;
    std::vector<Candidate> storage;
    storage.reserve(count);
    std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(storage));
    const auto consider = [&](std::int32_t left) {
        if (left == kNoToken || symbols[static_cast<std::size_t>(left)].next == kNoToken) {
            return;
        }
        const Symbol& symbol = symbols[static_cast<std::size_t>(left)];
        const BpeMerge merge = merge_of(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id);
        if (merge.rank != kNoRank) {
            queue.push({merge.rank, static_cast<std::uint32_t>(left), merge.joined});
        }
    };
    for (std::size_t i = 0; i + 1 < count; ++i) {
        consider(static_cast<std::int32_t>(i));
    }
    while (!queue.empty()) {
        const Candidate top = queue.top();
        queue.pop();
        Symbol& left = symbols[top.left];
        if (left.id == kNoToken || left.next == kNoToken) {
            continue;
        }
        Symbol& right = symbols[static_cast<std::size_t>(left.next)];
        if (merge_of(left.id, right.id).joined != top.joined) {
            continue;  // one of these has been joined otherwise
        }
        left.id = top.joined;
        right.id = kNoToken;
        left.next = right.next;
        if (left.next != kNoToken) {
            symbols[static_cast<std::size_t>(left.next)].previous = static_cast<std::int32_t>(top.left);
        }
        consider(left.previous);
        consider(static_cast<std::int32_t>(top.left));
    }
    ids.resize(first);
    for (std::int32_t at = 0; at != kNoToken; at = symbols[static_cast<std::size_t>(at)].next) {
        ids.push_back(symbols[static_cast<std::size_t>(at)].id);
    }
}

std::optional<std::string> bytes_of_byte_level(std::string_view token) {
    static const boost::unordered_flat_map<std::string, char> kBytes = bytes_by_character();
    std::string bytes;
    std::string character;
    while (!token.empty()) {
        character.assign(token.substr(0, std::max<std::size_t>(utf8_sequence(token), 1)));
        const auto found = kBytes.find(character);
        if (found == kBytes.end()) {
            return std::nullopt;
        }
        bytes.push_back(found->second);
        token.remove_prefix(character.size());
    }
    return bytes;
}

Result<Bpe> Bpe::read(const json::value& model, bool byte_level) {
    if (type_of(model) != "BPE" && !(model.is_object() && member_of(model.get_object(), "type") == nullptr &&
                                     member_of(model.get_object(), "merges") != nullptr)) {
        const json::value* type = model.is_object() ? member_of(model.get_object(), "type") : nullptr;
        return not_understood("model.type", type != nullptr ? *type : json::value());
    }
    Result<std::unique_ptr<const BpeVocabulary>> vocabulary = read_bpe_vocabulary(model, byte_level);
    if (!vocabulary) {
        return vocabulary.error();
    }
    return Bpe(std::move(*vocabulary));
}

}  // namespace distilld
