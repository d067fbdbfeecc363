"""Writes list-like answers from the world of simple stories: records as records.py explains them.

    stories.py OUT.jsonl COUNT SEED [--without FILE.jsonl]

Rules. A kind of list is drawn, then one of its prompts, then the items, no title twice in a list. An item is a title
and a detail of two to four sentences. The detail forks off right behind the title; it begins with a colon and names
what the title names. What is said fits the thing, by the tables below: owls fly, soups are tasted. A number in the
prompt is the number of items. Where the prompt names the items, the list has just these, in this order. Things to
pack have no number and are marked by "-". The details of rooms hold a list each: forks inside of forks. --without: no
prompt of that file."""
import json
import random
import re
import sys

NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
GIRLS = "Lily Lucy Anna Mia Sue Daisy Molly Jane Jill Sally Sarah Ann Ginger Rose Mary Ella Nina Emma".split()
BOYS = "Tim Timmy Ben Tom Sam Max Jack Peter Bob Joe Billy Benny Jimmy Paul Thomas Walter Hans Arthur".split()
COLORS = "red blue green yellow white black golden silver brown pink".split()
MOODS = "happy proud tired glad excited sleepy surprised".split()
GOOD = "kind brave clever cheerful friendly gentle careful curious quiet".split()
LOOKS = "old little big quiet dark green".split()
PLACES = (
    "in the forest", "on the farm", "in the garden", "by the river", "in the village", "on the hill", "by the sea",
    "near the castle", "in the park", "by the lake", "in the meadow", "in the mountains", "on the island",
    "in the valley", "in the wood", "near the old mill")
GOALS = (
    "the lake", "the forest", "the sea", "the castle", "the farm", "the mountain", "the island", "the river",
    "the village", "the beach", "the meadow", "the old mill")
LIKES = (
    "to sing", "to dance", "to run", "to swim", "to read books", "to climb trees", "to tell stories",
    "to fly a kite", "to draw pictures", "to play ball", "to bake cakes", "to look at the stars", "to pick flowers",
    "to catch fish", "to ride a horse", "to play in the snow")
HAPPENS = (
    "{found|saw} a {red|blue|golden|shiny|big} {ball|stone|key|flower|box} {in the grass|under a tree|near the road}",
    "helped a {little|lost|hungry} {bird|mouse|rabbit|frog|cat}",
    "met a {kind|tall|funny|hungry} stranger on the road",
    "got lost {in the rain|in the dark}, but {he} found the way home",
    "fell into the {river|mud|water}, but a friend came to help",
    "gave {his} dinner to a {poor man|hungry dog|little bird}",
    "won a race and everyone cheered",
    "made a {big|warm|little} {house|bed} of {leaves|straw|snow|wood}",
    "heard a strange noise and hid behind a {tree|rock|wall}")

# animal: how it is, where it lives, what it likes to do, what it eats
ANIMALS = {
    "fox": ("clever red", "in a den under a tree", "to run through the woods", "berries and mice"),
    "bear": ("big brown", "in a cave", "to sleep all winter", "honey and fish"),
    "owl": ("wise old", "in a hollow tree", "to fly at night", "mice"),
    "rabbit": ("soft white", "in a hole under the hill", "to hop in the grass", "carrots and leaves"),
    "mouse": ("tiny grey", "in a hole in the wall", "to hide behind the stove", "cheese and bread"),
    "frog": ("small green", "in the pond", "to jump from stone to stone", "flies"),
    "duck": ("yellow", "on the lake", "to swim with the others", "bread and plants"),
    "horse": ("strong black", "in the stable", "to run across the fields", "grass and apples"),
    "cow": ("large kind", "in the barn", "to lie in the sun", "grass"),
    "pig": ("fat pink", "in the yard", "to roll in the mud", "corn and apples"),
    "dog": ("brave brown", "in a little house by the gate", "to guard the sheep", "meat and bones"),
    "cat": ("lazy black", "by the fire", "to sleep in a basket", "fish and milk"),
    "squirrel": ("quick red", "high in an oak", "to climb up and down", "nuts"),
    "wolf": ("wild grey", "in the dark woods", "to sing to the moon", "meat"),
    "deer": ("gentle shy", "among the trees", "to drink from the stream", "grass and leaves"),
    "turtle": ("slow old", "by the water", "to walk very slowly", "leaves"),
    "swan": ("beautiful white", "on the river", "to look into the water", "plants from the water"),
    "hen": ("busy brown", "in the yard", "to sit on her eggs", "corn"),
    "goat": ("stubborn white", "on the mountain", "to climb over the rocks", "everything green"),
    "sheep": ("soft quiet", "in the meadow", "to walk behind the others", "grass"),
    "crow": ("loud black", "at the top of a pine", "to look for shiny things", "seeds and bread"),
    "monkey": ("funny little", "in the tall trees", "to swing from branch to branch", "fruits"),
    "lion": ("mighty golden", "on the wide plain", "to lie under a tree", "meat"),
    "elephant": ("huge grey", "near the water", "to splash with its trunk", "leaves and fruits"),
    "bee": ("busy little", "in the hive", "to fly from flower to flower", "honey"),
    "snake": ("long green", "under a warm stone", "to lie in the sun", "eggs and mice"),
    "fish": ("shiny silver", "in the deep water", "to swim in circles", "worms"),
    "eagle": ("great proud", "on a high rock", "to fly above the clouds", "fish"),
}

# toy: what one does with it, how it is
TOYS = {
    "ball": ("throw it high and catch it again", "It was round and could jump"),
    "kite": ("let it fly in the wind", "It had a long tail"),
    "boat": ("let it sail on the pond", "It had a little sail"),
    "doll": ("put it to bed every night", "It had long hair and a pretty dress"),
    "train": ("push it around the table", "It had four wheels and a bell"),
    "drum": ("beat it all morning", "It was so loud that the cat ran away"),
    "book": ("read in it before bed", "It was full of stories and pictures"),
    "bell": ("ring it at the door", "It had a clear, sweet sound"),
    "truck": ("fill it with sand", "It was big and strong"),
    "horse": ("ride on it through the room", "It was made of wood"),
    "bear": ("hug it at night", "It was soft and warm"),
    "whistle": ("blow it in the garden", "It sang like a bird"),
    "puzzle": ("put it together on the floor", "It showed a castle and a dragon"),
    "rope": ("jump over it in the yard", "It was long and strong"),
    "crown": ("wear it and play king and queen", "It was made of paper and shone in the sun"),
    "sword": ("play knight with it", "It was made of wood"),
}

# thing to take along: why
THINGS = {
    "hat": "keeps the sun off the head", "coat": "keeps warm when the wind is cold", "map": "shows the right way",
    "lamp": "gives light when it is dark", "rope": "helps to climb up the rocks",
    "knife": "cuts the bread and the cheese", "blanket": "is soft to sleep on",
    "bottle of water": "is good when one is thirsty", "bag of apples": "is good when one is hungry",
    "loaf of bread": "is food for the whole day", "pair of boots": "keeps the feet dry",
    "book": "is good to read when it rains", "cup": "is there to drink from", "stick": "helps to walk up the hill",
    "bucket": "carries water and sand", "net": "catches the fish", "umbrella": "keeps the rain away",
    "basket": "holds the berries and the nuts", "bell": "calls the others when one is lost",
    "tent": "is a little house for the night",
}

# work: what such a one does
PEOPLE = {
    "farmer": ("grew corn and kept cows", "got up before the sun every morning"),
    "baker": ("made bread and cakes", "had flour on {his} nose all day"),
    "fisher": ("caught fish in a big net", "went out on the water every night"),
    "teacher": ("taught the children to read", "knew a story for every day"),
    "doctor": ("helped people who were sick", "had a bag full of bottles"),
    "miller": ("made flour from the corn", "lived in a mill with four big wings"),
    "hunter": ("knew every path in the woods", "walked so softly that nobody heard a step"),
    "cook": ("made soup in a huge pot", "tasted everything with a big spoon"),
    "tailor": ("made coats and dresses", "had a needle and thread in every pocket"),
    "shepherd": ("looked after the sheep", "played the flute under a tree"),
    "king": ("wore a golden crown", "sat on a high throne"),
    "smith": ("made shoes for the horses", "had the strongest arms of all"),
    "gardener": ("planted roses and beans", "talked to the flowers"),
    "sailor": ("sailed across the sea", "had seen a whale as big as a house"),
    "painter": ("painted pictures of the sea", "had colors on every finger"),
    "guard": ("stood at the gate", "let nobody pass without a word"),
}

# who: he or she, how, what one does
FAMILY = {
    "mother": ("she", "kind and gentle", "baked bread for everyone"),
    "father": ("he", "tall and strong", "cut wood behind the house"),
    "grandmother": ("she", "old and wise", "told stories by the fire"),
    "grandfather": ("he", "very old and cheerful", "sat on the bench and carved little animals"),
    "brother": ("he", "small and noisy", "played with his drum all day"),
    "sister": ("she", "clever and quick", "could run faster than the wind"),
    "aunt": ("she", "funny and loud", "brought a cake every Sunday"),
    "uncle": ("he", "brave and quiet", "had been at sea for many years"),
    "cousin": ("he", "curious and shy", "looked under every stone"),
    "baby": ("she", "tiny and sweet", "slept in a basket near the stove"),
}

# place: how it is, who is there
SIGHTS = {
    "castle": ("It stood on a hill and had high towers", "A king and a queen lived there"),
    "forest": ("The trees were so tall that one could not see the sky", "Deer and owls lived there"),
    "lake": ("The water was clear and cold", "White swans swam on it"),
    "bridge": ("It was made of stone and went over the river", "A troll slept under it"),
    "market": ("It was loud and full of people", "One could buy apples, fish and bread there"),
    "mill": ("Its wings turned in the wind", "The miller made flour there"),
    "cave": ("It was dark and deep", "A bear slept inside"),
    "garden": ("Roses and beans grew there", "Bees flew from flower to flower"),
    "tower": ("It was so high that the clouds touched it", "An old man looked at the stars from there"),
    "island": ("There was sand all around it", "Nobody lived there but birds"),
    "cottage": ("It had a red roof and a warm stove", "An old woman lived there with her cat"),
    "well": ("It was deep and the water was sweet", "The girls came there every morning"),
    "mountain": ("There was snow on it, even in summer", "Eagles lived at the top"),
    "school": ("It had big windows and a bell", "The children learned to read there"),
}

# room: how it is, what is in it
ROOMS = {
    "kitchen": ("was warm and smelled of bread", "pot table stove knife basket".split()),
    "bedroom": ("was quiet and dark", "bed lamp mirror blanket chest".split()),
    "garden": ("was full of roses", "well bench tree gate swing".split()),
    "hall": ("was high and wide", "throne table picture clock fire".split()),
    "tower": ("was round and cold", "bell window chest ladder lamp".split()),
    "barn": ("was big and full of straw", "cart ladder basket bucket rope".split()),
    "cellar": ("was cold and deep", "chest bottle lamp basket pot".split()),
    "library": ("was still and full of dust", "book lamp ladder clock map".split()),
}

# what is said of things in rooms
ROOM_THINGS = {
    "pot": "There was hot soup in it", "table": "It had four strong legs", "stove": "It kept everyone warm",
    "knife": "It was very sharp", "basket": "There were red apples in it", "bed": "It was soft and wide",
    "lamp": "It gave a little light", "mirror": "One could see the whole room in it",
    "blanket": "It was made of wool", "chest": "It was full of old coins", "well": "The water in it was sweet",
    "bench": "It stood in the sun", "tree": "A bird had its nest in it", "gate": "It was always open",
    "swing": "The children loved it", "throne": "It was made of gold", "picture": "It showed a queen on a horse",
    "clock": "It was always late", "fire": "It burned day and night", "bell": "It rang at noon",
    "window": "One could see the sea from it", "ladder": "It was long and old", "cart": "It had two big wheels",
    "bucket": "It was full of milk", "rope": "It was as long as the house", "bottle": "It held sweet juice",
    "book": "It was full of fairy tales", "map": "It showed a hidden treasure",
}

# work: its steps in order, title and detail
STEPS = {
    "a cake": (
        ("Mix the dough", "Put flour, eggs, milk and sugar into a bowl. Mix the dough until it is smooth."),
        ("Fill the form", "Pour the dough into a round form. Do not spill it on the floor."),
        ("Bake it", "Bake the cake in the hot oven. Wait until it is golden brown."),
        ("Eat it", "Cut the cake with a knife. Everyone may eat a piece.")),
    "a soup": (
        ("Get water", "Fill the big pot with water from the well. It should be half full."),
        ("Cut the vegetables", "Take carrots, beans and an onion. Cut them into little pieces."),
        ("Cook it", "Put the vegetables into the pot. Let the soup cook until they are soft."),
        ("Taste it", "Take a spoon and taste the soup. Add a little salt.")),
    "a kite": (
        ("Find two sticks", "The sticks should be light and straight. Tie them into a cross."),
        ("Add the paper", "Cut a big piece of paper. Fold it around the sticks."),
        ("Make a tail", "Tie little ribbons to a string. A long tail keeps the kite still."),
        ("Let it fly", "Wait for a good wind. Run fast and let the kite fly.")),
    "a garden": (
        ("Dig the earth", "Take a spade and dig until the earth is soft. Throw the stones away."),
        ("Plant the seeds", "Make little holes and put the seeds into them. Cover the seeds with earth."),
        ("Bring water", "Give the seeds water every evening. They are thirsty when the sun shines."),
        ("Wait", "Wait for many days. Soon green leaves come up.")),
    "a snowman": (
        ("Roll a big ball", "Roll the snow until the ball is as big as a chair. It is the body."),
        ("Roll a small ball", "Make a small ball for the head. Put it on top of the big one."),
        ("Make a face", "The face needs a carrot for the nose. Two black stones are the eyes."),
        ("Add a hat", "Put an old hat on the head. Now the snowman is not cold.")),
    "a nest": (
        ("Look for a branch", "Find a strong branch high in a tree. No cat should come up there."),
        ("Bring sticks", "Carry many little sticks. Lay them in a circle."),
        ("Make it soft", "Put feathers and wool inside. The eggs need a soft bed."),
        ("Sit in it", "Sit in the nest and turn around. Now it has the right shape.")),
    "a boat": (
        ("Cut the wood", "Cut the wood of a strong tree into long boards. Let them dry in the sun."),
        ("Build the body", "Nail the boards together to build the body. There must be no hole."),
        ("Sew the sail", "Take a large white cloth. Sew the sail with strong thread."),
        ("Try it", "Push the boat into the water and try it. See if it swims.")),
    "a fire": (
        ("Find a place", "Look for a place with stones and no grass. It must be dry."),
        ("Bring wood", "Get small sticks and big logs. Wet wood gives only smoke."),
        ("Light it", "Light the straw with a burning stick. Blow softly."),
        ("Watch it", "Watch the fire all the time. Have water near it.")),
}


def filled(rng, text, words):
    """A template with every {name} replaced by words["name"] and every {a|b} by one of its choices."""
    def chosen(found):
        inside = found.group(1)
        return words[inside] if inside in words else rng.choice(inside.split("|"))

    while "{" in text:
        text = re.sub(r"\{([^{}]*)\}", chosen, text)
    return text


def pronouns(he, **more):
    """The words for one who is called he, she or it."""
    his, him = {"she": ("her", "her"), "he": ("his", "him"), "it": ("its", "it")}[he]
    return dict(more, he=he, He=he.capitalize(), his=his, His=his.capitalize(), him=him)


def persons(rng, count, he=None):
    """The words of different persons: name, child (girl or boy), pronouns."""
    names = rng.sample(GIRLS + BOYS if he is None else BOYS, count)
    return [pronouns("she" if n in GIRLS else "he", name=n, child="girl" if n in GIRLS else "boy") for n in names]


def person(rng, he=None):
    return persons(rng, 1, he)[0]


def numbered(n):
    """The words for a number in a prompt."""
    return {"n": NUMBERS[n], "N": NUMBERS[n].capitalize()}


def joined(names):
    return ", ".join(names[:-1]) + " and " + names[-1]


def with_article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def asked(rng, words, *prompts):
    """One of the prompts. Those that end in a colon begin a story, the others ask."""
    return filled(rng, rng.choice(prompts), dict(words, place=rng.choice(PLACES)))


def listed(items, mark=None, closing=""):
    """The answer: a line for every (title, detail); a detail is a text or the parts of an answer."""
    answer = []
    for i, (title, detail) in enumerate(items):
        parts = [detail] if isinstance(detail, str) else detail
        answer += ["\n%s %s" % (mark or "%d." % (i + 1), title), [": " + parts[0]] + parts[1:]]
    return answer + (["\n" + closing] if closing else [])


def named_animals(rng):
    n = rng.randint(2, 5)
    prompt = asked(rng, dict(person(rng), **numbered(n)),
                   "Tell me about {n} animals {place}.", "{N} animals lived {place}:",
                   "Who were the {n} animals {place}?", "{name} had {n} friends {place}:",
                   "Tell me about the {n} animals that {name} {met|saw|loved} {place}.")
    items = []
    for words, animal in zip(persons(rng, n), rng.sample(list(ANIMALS), n)):
        look, home, does, food = ANIMALS[animal]
        words.update(animal=animal, look=look, home=home, does=does, meal=rng.choice(("", " {He} ate %s." % food)))
        detail = "{name} was a {look} {animal}. {He} lived {home} and {liked|loved} {does}.{meal} One day {he} "
        detail += rng.choice(HAPPENS) + "."
        items.append((filled(rng, "{name} the {animal}", words), filled(rng, detail, words)))
    return prompt, listed(items, closing=rng.choice(("They were all good friends.", "")))


def chosen_animals(rng):
    animals = rng.sample(list(ANIMALS), rng.randint(2, 4))
    prompt = asked(rng, dict(person(rng), them=joined([with_article(a) for a in animals])),
                   "Tell me about {them}.", "What do you know about {them}?", "{name} saw {them} {place}:")
    items = []
    for animal in animals:
        look, home, does, food = ANIMALS[animal]
        words = {"animal": animal, "look": look, "home": home, "does": does, "food": food}
        items.append(("The " + animal, filled(rng, "The {look} {animal} lived {home}. It {liked|loved} {does}. "
                                                   "It ate {food}{ every day| in the morning|}.", words)))
    return prompt, listed(items)


def children(rng):
    n = rng.randint(2, 5)
    prompt = asked(rng, dict(person(rng), **numbered(n)),
                   "Tell me about {n} children {place}.", "{N} children played {place}:",
                   "{N} friends met {place}:", "Who were the {n} children {place}?", "{name} met {n} children {place}:")
    items = []
    for words, toy in zip(persons(rng, n), rng.sample(list(TOYS), n)):
        words.update(toy=toy, color=rng.choice(COLORS), use=TOYS[toy][0], good=rng.choice(GOOD), like=rng.choice(LIKES))
        detail = "{name} was a {good} {child}. {He} had a {color} {toy} and loved to {use}. "
        more = rng.choice(("{He} also liked {like}.", "One day {he} " + rng.choice(HAPPENS) + "."))
        items.append((filled(rng, "{name} with the {color} {toy}", words), filled(rng, detail + more, words)))
    return prompt, listed(items, closing=rng.choice(("They played until the sun went down.", "")))


def presents(rng):
    n, who = rng.randint(2, 5), person(rng)
    prompt = asked(rng, dict(who, **numbered(n)),
                   "{name} got {n} gifts on {his} birthday {place}:", "What did {name} get {place}? Name {n} gifts.",
                   "Tell me about the {n} gifts that {name} got {place}.")
    items = []
    for toy in rng.sample(list(TOYS), n):
        words = dict(who, toy=toy, color=rng.choice(COLORS), giver=rng.choice(list(FAMILY)[:8]), use=TOYS[toy][0],
                     looks=TOYS[toy][1])
        detail = "{name} got a {color} {toy} from {his} {giver}. {looks}. {He} {wanted to|could now} {use}" \
                 "{.| and was very {happy|proud|glad}.}"
        items.append((filled(rng, "A {color} {toy}", words), filled(rng, detail, words)))
    return prompt, listed(items, closing=rng.choice(("It was a wonderful day.", "%s said thank you." % who["name"])))


def packing(rng):
    who = dict(person(rng), goal=rng.choice(GOALS))
    prompt = asked(rng, who, "What should {name} take to {goal}?", "What does {name} take to {goal}?",
                   "{name} wants to go to {goal}. What should {he} take along?", "{name} packs {his} bag for {goal}:")
    items = []
    for thing in rng.sample(list(THINGS), rng.randint(3, 5)):
        words = dict(who, thing=thing, why=THINGS[thing], short=thing.split()[0])
        more = rng.choice(("{He} puts the {short} into {his} bag.", "Without the {short} it would be hard at {goal}.",
                           "It was a gift from {his} {mother|father|grandmother|brother|sister}.",
                           "The {short} is {old|new|small} but {good|strong}."))
        detail = "{name} {needs|takes} a {thing}, because it {why}. " + more
        items.append((thing.capitalize(), filled(rng, detail, words)))
    return prompt, listed(items, mark="-")


def days(rng):
    n, first = rng.randint(2, 5), rng.randint(0, 6)
    who = dict(person(rng), day=DAYS[first], **numbered(n))
    prompt = asked(rng, who, "What did {name} do on these {n} days, from {day} on?",
                   "Tell me about {n} days of {name}, from {day} on.",
                   "{name} went out on {n} days, the first one was {day}:")
    items = []
    for i, goal in enumerate(rng.sample(GOALS, n)):
        words = dict(who, day=DAYS[(first + i) % 7], goal=goal, mood=rng.choice(MOODS), like=rng.choice(LIKES),
                     animal=with_article(rng.choice(list(ANIMALS))), friend=rng.choice(GIRLS + BOYS))
        there = rng.choice(("There {he} saw {animal}. ", "{He} met {friend} there. ",
                            "It was {sunny|cold|windy} there. ",
                            "{His} {mother|father|grandmother|brother|sister} came along. "))
        then = rng.choice(("{He} came home {mood}.", "In the evening {he} was {mood}.", "{He} stayed {like}."))
        detail = "On {day} {name} went to {goal}. " + there + then
        items.append((filled(rng, "{day}, {goal}", words), filled(rng, detail, words)))
    return prompt, listed(items)


def family(rng):
    who, names = person(rng), rng.sample(list(FAMILY), rng.randint(2, 5))
    prompt = asked(rng, dict(who, them=joined(names)),
                   "Tell me about {name}'s {them}.", "Tell me about {name}'s {them}.",
                   "Tell me about {name}'s family {place}.", "Who lives with {name} {place}?",
                   "{name} lived {place} with {his} family:")
    items = []
    for relation in names:
        he, looks, does = FAMILY[relation]
        words = pronouns(he, who=who["name"], whose=who["his"], relation=relation, looks=looks, does=does,
                         like=rng.choice(LIKES))
        more = rng.choice(("{He} liked {like}.", "{who} loved {whose} {relation} very much.",
                           "{He} sang a song for {who}."))
        items.append(("The " + relation, filled(rng, "{who}'s {relation} was {looks}. {He} {does}. " + more, words)))
    return prompt, listed(items, closing=rng.choice(("They were a happy family.", "")))


def steps(rng):
    what, who = rng.choice(list(STEPS)), person(rng)
    prompt = asked(rng, dict(who, what=what), "How does {name} make {what} {place}?", "{name} made {what} {place}:",
                   "{name} wants to make {what} {place}. What must {he} do?", "Tell {name} how to make {what} {place}.")
    more = ("", "", " {name} can do that alone.", " A friend may help {name}.", " {name} should be careful.")
    return prompt, listed([(title, detail + filled(rng, rng.choice(more), who)) for title, detail in STEPS[what]])


def people(rng):
    works = rng.sample(list(PEOPLE), rng.randint(2, 5))
    words = dict(person(rng), them=joined(["the " + work for work in works]), **numbered(len(works)))
    prompt = asked(rng, words, "Tell me about {them} {place}.", "Tell me about {n} people {place}.",
                   "{N} people worked {place}:", "Who are the {n} people that {name} knows {place}?")
    items = []
    for work, words in zip(works, persons(rng, len(works), "he" if "king" in works else None)):
        first, second = PEOPLE[work]
        words.update(work=work, good=rng.choice(GOOD), like=rng.choice(LIKES))
        more = rng.choice(("In the evening {he} liked {like}.", "One day {he} " + rng.choice(HAPPENS) + ".",
                           "Everyone liked {him}."))
        detail = "{name} was a {good} {work}. {He} " + first + " and " + second + ". " + more
        items.append((filled(rng, "{name} the {work}", words), filled(rng, detail, words)))
    return prompt, listed(items, closing=rng.choice(("They all lived there happily.", "")))


def sights(rng):
    n, who = rng.randint(2, 5), person(rng)
    prompt = asked(rng, dict(who, **numbered(n)), "Tell me about {n} places that {name} saw {place}.",
                   "{name} came to {n} places {place}:", "Which {n} places did {name} visit {place}?")
    items = []
    for sight in rng.sample(list(SIGHTS), n):
        words = dict(who, sight=sight, look=rng.choice(LOOKS), like=rng.choice(LIKES), mood=rng.choice(MOODS))
        more = rng.choice(("{He} stayed until the evening.", "{He} came back {like}.", "{He} was {mood}.",
                           "{He} came back the next day."))
        detail = "{name} {came to|saw} the {look} {sight}. " + ". ".join(SIGHTS[sight]) + ". " + more
        items.append((filled(rng, "The {look} {sight}", words), filled(rng, detail, words)))
    return prompt, listed(items)


def rooms(rng):
    names = rng.sample(list(ROOMS), rng.randint(2, 3))
    who = dict(person(rng), house=rng.choice(("castle", "house", "farm", "palace")), **numbered(len(names)))
    prompt = asked(rng, who, "Tell me about {n} rooms of {name}'s {house} {place}.",
                   "{name} had {n} rooms in {his} {house} {place}:",
                   "What was in the {n} rooms of {name}'s {house} {place}?")
    items = []
    for room in names:
        things = []
        for thing in rng.sample(ROOMS[room][1], 2):
            words = dict(who, thing=thing, look=rng.choice(("old", "big", "small", "beautiful", "heavy")))
            more = rng.choice(("{name} used it every day.", "{name} liked it.", "Nobody knew who had made it."))
            things.append((with_article("%s %s" % (words["look"], thing)).capitalize(),
                           filled(rng, "The {thing} was {look}. " + ROOM_THINGS[thing] + ". " + more, words)))
        items.append(("The " + room, ["The %s %s. There were two things in it." % (room, ROOMS[room][0])] +
                      listed(things, mark="-")))
    return prompt, listed(items)


KINDS = {named_animals: 3, chosen_animals: 2, children: 2, presents: 2, packing: 2, days: 2, family: 2, steps: 1,
         people: 2, sights: 2, rooms: 2}


def record(rng):
    """One record, of a kind drawn by its weight."""
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    prompt, answer = kind(rng)
    return {"kind": kind.__name__, "prompt": prompt, "answer": answer}


def main(path, count, seed, without=()):
    rng, done = random.Random(int(seed)), 0
    with open(path, "w") as out:
        while done < int(count):
            made = record(rng)
            if made["prompt"] not in without:
                out.write(json.dumps(made) + "\n")
                done += 1


if __name__ == "__main__":
    if len(sys.argv) not in (4, 6):
        sys.exit(__doc__)
    left_out = {json.loads(line)["prompt"] for line in open(sys.argv[5])} if len(sys.argv) == 6 else ()
    main(sys.argv[1], sys.argv[2], sys.argv[3], left_out)
