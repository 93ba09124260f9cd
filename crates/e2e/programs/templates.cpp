// Template-heavy: the compiler's memory is what counts, the program does nothing of use.
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

template <int N> struct Tag {
    std::string name = std::to_string(N);
    friend bool operator<(const Tag& a, const Tag& b) { return a.name < b.name; }
};

template <int N> int work(int seed) {
    std::map<Tag<N>, std::vector<std::tuple<Tag<N>, int>>> map;
    std::variant<int, Tag<N>, std::pair<Tag<N>, int>> either = seed;
    std::function<int(const Tag<N>&)> length = [seed](const Tag<N>& tag) { return int(tag.name.size()) + seed; };
    map[Tag<N>{}].emplace_back(Tag<N>{}, seed);
    return length(Tag<N>{}) + int(map.size()) + std::visit([](const auto& value) { return int(sizeof value); }, either);
}

template <int... N> int all(std::integer_sequence<int, N...>) { return (work<N>(N) + ...); }

int main() { return all(std::make_integer_sequence<int, COUNT>{}) & 127; }
