# SPDX-License-Identifier: Apache-2.0
# Strings, hashes, arrays and structs in Ruby: churn.rb SIZE (rounds). The seed is fixed.
Item = Struct.new(:key, :name, :numbers)

source = Random.new(20261120)
kept = {}
queue = []
Integer(ARGV[0]).times do |round|
  words = Array.new(25_000) { "word #{source.rand(6000)}#{'x' * source.rand(50)}" }
  totals = Hash.new(0)
  words.each { |word| totals[word[0, 9].upcase] += word.length }
  8000.times do
    key = source.rand(40_000)
    kept[key] = Item.new(key, words[source.rand(words.size)] + key.to_s, Array.new(source.rand(20)))
  end
  text = words.join("\n")
  changed = text.gsub(/word (\d)/) { "w#{Regexp.last_match(1)}" }
  queue << changed.lines.map(&:chomp)
  queue.shift if queue.size > 3
  top = totals.sort_by { |word, total| [-total, word] }.first(3)
  puts "#{round} #{text.bytesize} #{changed.bytesize} #{kept.size} #{top.inspect}"
end
puts kept.values.sum { |item| item.name.bytesize + item.numbers.size }
